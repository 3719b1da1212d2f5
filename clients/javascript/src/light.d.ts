import type { Client, Network, Order, Units } from "./index.js";

/** The function `argon2id` of hash-wasm, or another one that gives the same. */
export type Argon2id = (options: {
  password: Uint8Array;
  salt: Uint8Array;
  iterations: number;
  parallelism: number;
  memorySize: number;
  hashLength: number;
  outputType: "binary";
}) => Promise<Uint8Array>;

export interface CheckOptions {
  /** By default that of the package `hash-wasm`, which must be installed then. */
  argon2id?: Argon2id;
  /** The cumulative work that the chain must have: that of the newest block that you have verified. */
  minimumWork?: Units;
  /** The time in Unix milliseconds, by default that of this computer. */
  now?: number;
  /** Called with the number of headers whose work has been checked, and that of all. */
  progress?: (done: number, total: number) => void;
}

export interface OrderOptions extends CheckOptions {
  /** The network of the address or of the recipient, which must be given unless it is mainnet or devnet. */
  network?: Network;
}

export interface AskOptions extends CheckOptions {
  /** Cancels a question to a node. */
  signal?: AbortSignal;
}

/** The last block of a proven chain. */
export interface ProvenTip {
  hash: string;
  height: string;
  slot: string;
  /** When its slot began, in Unix milliseconds: compare it with your clock. */
  time: string;
}

export interface ProvenChain {
  tip: ProvenTip;
  /** Cumulative: give it to the next check as `minimumWork`. */
  work: bigint;
  /** Characters of all answers that were read. */
  bytes: number;
  /** How often Argon2id was computed; headers that an earlier node has shown do not count again. */
  evaluations: number;
}

/** An account after the block `tip`, whose stateRoot is the word of one producer until blocks are built on it. */
export interface ProvenAccount extends ProvenChain {
  address: string;
  /** False if the chain has no such account. */
  exists: boolean;
  balance: string;
  nonce: string;
  heldSince: string | null;
}

export interface ProvenPayment extends ProvenChain {
  txid: string;
  sender: string;
  blockHash: string;
  blockHeight: string;
  /** Blocks from the block of the transfer to `tip`, including both. */
  confirmations: number;
}

export interface AskOrderOptions extends AskOptions {
  /** The network of the address or of the recipient: by default that of the nodes, or else mainnet or devnet. */
  network?: Network;
}

/** Which node has proven it, and which nodes have not. */
export interface Source {
  node: Client;
  refused: { node: Client; error: Error }[];
}

/** The chain with the most work that a node, or any of several, proves.
 *
 * Rejects with the error of the node with the most work if nothing holds on its chain, or else of the first node.
 */
export function verifyChain(
  nodes: Client | readonly Client[],
  network: Network,
  options?: AskOptions,
): Promise<ProvenChain & Source>;
/** The account of an address after the newest block of the chain with the most work. */
export function provenBalance(
  nodes: Client | readonly Client[],
  address: string,
  options?: AskOrderOptions,
): Promise<ProvenAccount & Source>;
/** The payment of an order on the chain with the most work. */
export function provenPayment(
  nodes: Client | readonly Client[],
  order: Order,
  options?: AskOrderOptions,
): Promise<ProvenPayment & Source>;

/** The chain that the answer of `GET /rpc/proof/chain` proves; rejects with InvalidProof. */
export function checkChainProof(answer: string, network: Network, options?: CheckOptions): Promise<ProvenChain>;
/** The account that the answer of `GET /rpc/proof/account/{address}` proves, with `chainAnswer` for the same tip. */
export function checkAccountProof(
  answer: string,
  address: string,
  chainAnswer: string,
  options?: OrderOptions,
): Promise<ProvenAccount>;
/** The payment that a proof proves: the answer of `GET /rpc/commerce/payment/{reference}/proof`, which `proof` of a
 * client resolves to. With `tip`, the hash of a block that you trust, the proof must end in that block. */
export function checkPaymentProof(
  answer: string,
  order: Order,
  options?: OrderOptions & { tip?: string },
): Promise<ProvenPayment>;
