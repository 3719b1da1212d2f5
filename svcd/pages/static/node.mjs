// The node that serves this page, over its public routes (docs/http.md). It is asked, and never simply believed.

import { coins, inCoins } from "./digits.mjs";
import { PRUNED, objectIn, question, textOf } from "./answers.mjs";
import { builtIn } from "./built-in.mjs";
import { InvalidAnswer } from "./errors.mjs";
import { FEE_LIMIT, NETWORKS, slotTime } from "./networks.mjs";
import { must, Problem, quoted } from "./problem.mjs";
import { message } from "./texts.mjs";
import { wireNumber } from "./units.mjs";

/** @import { Network } from "./networks.mjs" */
/** @import { Payload, Transfer } from "./transaction.mjs" */
/** @typedef {Record<string, unknown>} Fields of an answer, which may hold anything. */
/** @typedef {{ network: Network, height: bigint, first: bigint, tip: string, tipTime: number, syncing: boolean,
 *   time: number }} View whose times are in Unix milliseconds: tipTime is that of the newest block, and time that of the
 * node's clock. `first` is the height of the first block that the node has whole. */
/** @typedef {{ balance: bigint, pendingBalance: bigint, nonce: bigint, pendingNonce: bigint, tip: string }} Account in base
 * units, with the hash of the block after which it is so, or "". */
/** @typedef {{ confirmations: number, blockHeight: string, blockTime: number }} Place */
/** @typedef {{ recipient: string, amount: bigint, reference: string, confirmations: number }} Order */
/** @typedef {{ state: string, txid: string | null, first: bigint, told: Fields | null }} Found in the blocks from `first` on,
 * with all that the node tells of it. */
/** @typedef {{ txid: string, senderAddress: string, payload?: Payload, blockTime?: string }} TransferRecord */
/** @typedef {{ transfers: TransferRecord[], next: string | null }} TransferPage */

const TIMEOUT = 10_000;
/** For a proof of half a megabyte on a slow line. */
const SLOW_TIMEOUT = 60_000;
/** How often what begins at the first block is asked for while the node deletes blocks. */
const TRIES = 3;
const STATES = ["unpaid", "pending", "confirming", "confirmed"];

/** How a question is asked that must be answered within so many milliseconds.
 * @type {(timeout: number) => RequestInit} */
const within = (timeout) => question(AbortSignal.timeout(timeout));

/** @type {(sentence: string) => Problem} */
const unreachable = (sentence) => new Problem("node-unreachable", sentence);
/** @type {() => Problem} */
export const odd = () => unreachable(message("wallet-script.node-odd"));

/** What to tell of a question that failed.
 * @type {(error: unknown) => Problem} */
function failure(error) {
  if (error instanceof Problem) return error;
  return error instanceof InvalidAnswer ? odd() : unreachable(message("wallet-script.node-silent"));
}

/** @type {(record: Fields | null, name: string) => bigint} */
function numberIn(record, name) {
  const number = wireNumber(record?.[name]);
  if (number === null) throw odd();
  return number;
}

/** @type {(record: Fields | null, name: string) => number} */
function countIn(record, name) {
  const count = record?.[name];
  if (typeof count !== "number" || !Number.isSafeInteger(count) || count < 0) throw odd();
  return count;
}

/** A module that is loaded when it is needed; throws `node-unreachable`. After an upgrade the node has only the new ones.
 * @template T
 * @param {Promise<T>} loading
 * @returns {Promise<T>} */
export const loaded = (loading) =>
  loading.catch(() => {
    throw unreachable(message("wallet-script.part-missing"));
  });

/** Throw `node-unreachable` unless a record has these members: it would be about something else than was asked for.
 * @type {(record: Fields | null, expected: Fields) => void} */
function checkSame(record, expected) {
  if (Object.entries(expected).some(([name, value]) => record?.[name] !== value)) throw odd();
}

/** The records of transfers in an answer; their members are checked where they are read.
 * @type {(answer: Fields | null) => TransferRecord[]} */
function records(answer) {
  const found = answer?.transactions;
  if (!Array.isArray(found) || !found.every((each) => typeof each === "object" && each !== null)) throw odd();
  return found;
}

/** The place of a transfer in the chain, from a record of it.
 * @type {(record: Fields) => Place} */
export const placeOf = (record) => ({
  confirmations: countIn(record, "confirmations"),
  blockHeight: numberIn(record, "blockHeight").toString(),
  blockTime: Number(numberIn(record, "blockTime")),
});

/** The routes of a node, asked with `fetch`. Throws `node-unreachable` wherever no answer comes that makes sense. */
export class Node {
  /** @type {(path: string, options: RequestInit) => Promise<Response>} */
  #fetch;
  #ready;
  /** @type {Network | null} */
  #network = null;
  /** The height of the first block that the node has whole, as it was told last. */
  #first = 0n;

  /** `ready` is waited for before each question, but not before a transfer is handed in.
   * @param {(path: string, options: RequestInit) => Promise<Response>} fetch
   * @param {() => Promise<void>} ready */
  constructor(fetch, ready = async () => {}) {
    this.#fetch = fetch;
    this.#ready = ready;
  }

  /** An answer as it is, with the newest block that it names and the characters that it has; a `body` is posted.
   * @type {(path: string, body?: object) => Promise<{ status: number, answer: Fields | null, tip: string, size: number }>} */
  async ask(path, body) {
    if (body === undefined) await this.#ready();
    const options = within(TIMEOUT);
    const headers = { ...options.headers, "Content-Type": "application/json" };
    const post = { method: "POST", headers, body: JSON.stringify(body) };
    try {
      const response = await this.#fetch(path, body === undefined ? options : { ...options, ...post });
      const { status } = response;
      // What a proxy says of a node that it does not reach is no JSON.
      if (status === 429 || status >= 500) throw unreachable(message("wallet-script.node-busy", { status }));
      const text = await textOf(response);
      const tip = response.headers.get("Svc-Tip")?.split(":")[1] ?? "";
      return { status, answer: objectIn(text), tip, size: text.length };
    } catch (error) {
      throw failure(error);
    }
  }

  /** @type {(path: string, member: string) => Promise<Fields | null>} */
  async #get(path, member) {
    return this.#read(member, await this.ask(path));
  }

  /** @type {(member: string, told: { status: number, answer: Fields | null }) => Fields | null} */
  #read(member, { status, answer }) {
    must(status === 200 || status === 404, "rejected", message("wallet-script.node-refuses", { reason: quoted(answer?.error) }));
    if (status === 404) return null;
    const found = answer?.[member];
    if (typeof found !== "object" || found === null) throw odd();
    return /** @type {Fields} */ (found);
  }

  /** What the node tells of the blocks from the first one that it has whole on, and the height of that block.
   *
   * It is asked again if the node has deleted that block meanwhile.
   * @type {(path: (first: bigint) => string, member: string) => Promise<{ first: bigint, found: Fields | null }>} */
  async #fromFirst(path, member) {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const first = this.#first;
      const told = await this.ask(path(first));
      if (told.status !== PRUNED) return { first, found: this.#read(member, told) };
      this.#first = numberIn(told.answer, "pruneHeight");
    }
    throw odd();
  }

  /** The text of an answer of which a worker checks every character, or null and why there is none.
   * @type {(path: string) => Promise<{ text: string | null, sentence: string }>} */
  async text(path) {
    try {
      await this.#ready();
      const response = await this.#fetch(path, within(SLOW_TIMEOUT));
      const text = await textOf(response);
      if (response.status === 200) return { text, sentence: "" };
      return { text: null, sentence: message("wallet-script.node-busy", { status: response.status }) };
    } catch (error) {
      return { text: null, sentence: failure(error).message };
    }
  }

  /** What the node is on now: network, newest block, whether it is syncing, and its clock.
   * Throws `wrong-network` for a network whose genesis hash is not that of its rules.
   * @type {() => Promise<View>} */
  async view() {
    const status = (await this.#get("/rpc/status", "status")) ?? {};
    const network = await this.#networkOf(status.chainId);
    const same = status.genesisHash === network.genesisHash && status.networkId === network.networkId;
    must(
      same,
      "wrong-network",
      message("wallet-script.chain-other", { network: network.name }),
    );
    const height = numberIn(status, "height");
    const first = (this.#first = numberIn(status, "pruneHeight"));
    const syncing = status.syncState !== "synced";
    const tipTime = Number(slotTime(network.rules, numberIn(status, "slot")));
    return { network, height, first, tip: String(status.hash), tipTime, syncing, time: Number(numberIn(status, "time")) };
  }

  /** The network with this name of a chain: the one on which the node was before, a built-in one, or that of its rules.
   * @type {(chainId: unknown) => Promise<Network>} */
  async #networkOf(chainId) {
    const known = this.#network ?? builtIn(chainId);
    if (known !== undefined) {
      must(chainId === known.chainId, "wrong-network", message("wallet-script.chain-moved", { network: quoted(chainId) }));
      return known;
    }
    const told = await this.ask("/rpc/rules");
    const unknown = message("wallet-script.chain-unknown", { chain: quoted(chainId) });
    must(this.#read("rules", told)?.chainId === chainId, "wrong-network", unknown);
    const { ownNetwork } = await loaded(import("./own-network.mjs"));
    const network = await ownNetwork(/** @type {Fields} */ (told.answer));
    if (network === null) throw odd();
    return network;
  }

  /** The network of the node, whose rules are looked at too, and on which it must stay; throws `wrong-network`.
   * @type {() => Promise<Network>} */
  async network() {
    // Both at once: on a slow line each question costs most of a second.
    const [{ network }, consensus] = await Promise.all([this.view(), this.#get("/rpc/consensus", "consensus")]);
    const { minimumFee, accountMinimum } = network.rules;
    const same =
      consensus?.genesisHash === network.genesisHash &&
      consensus.minimumFee === minimumFee.toString() &&
      consensus.accountMinimum === accountMinimum.toString();
    const [fee, least] = [minimumFee, accountMinimum].map(coins);
    const sentence = message("wallet-script.rules-other", { network: network.name, fee, least });
    must(same, "wrong-network", sentence);
    this.#network = network;
    return network;
  }

  /** Balance in base units, and the next nonce on the chain and after what waits.
   * @type {(address: string) => Promise<Account>} */
  async account(address) {
    const told = await this.ask(`/rpc/balance/${address}`);
    const account = this.#read("account", told);
    checkSame(account, { address });
    const names = ["balance", "pendingBalance", "nonce", "pendingNonce"];
    const [balance, pendingBalance, nonce, pendingNonce] = names.map((name) => numberIn(account, name));
    if (pendingNonce < nonce) throw odd();
    return { balance, pendingBalance, nonce, pendingNonce, tip: told.tip };
  }

  /** The fee that the node suggests for a transfer now, in base units; throws `fee` if it is out of all reason.
   * @type {() => Promise<bigint>} */
  async fee() {
    const fee = numberIn(await this.#get("/rpc/fees", "fees"), "suggestedFee");
    // Both built-in networks have the same minimum.
    const { minimumFee } = (this.#network ?? NETWORKS.mainnet).rules;
    const [least, most] = [minimumFee, FEE_LIMIT * minimumFee];
    const sentence = message("wallet-script.fee-unreasonable", { fee: coins(fee), least: coins(least), most: coins(most) });
    must(fee >= least && fee <= most, "fee", sentence);
    return fee;
  }

  /** The place of a transfer in the chain, or null if no block holds it.
   * @type {(txid: string) => Promise<Place | null>} */
  async transaction(txid) {
    const found = await this.#get(`/rpc/transaction/${txid}`, "transaction");
    if (found === null) return null;
    checkSame(found, { txid });
    return placeOf(found);
  }

  /** A transfer from or to an address, as the node tells of it, and its place in the chain, or null while it waits for a
   * block; null if it does neither.
   * @type {(txid: string, address: string) => Promise<{ record: TransferRecord, place: Place | null } | null>} */
  async transfer(txid, address) {
    const inBlock = async () => {
      const found = await this.#get(`/rpc/transaction/${txid}`, "transaction");
      return found && { record: /** @type {TransferRecord} */ (found), place: placeOf(found) };
    };
    const found = await inBlock();
    if (found) return found;
    const record = (await this.waiting(address)).find((each) => each.txid === txid);
    // A block may have taken it meanwhile.
    return record ? { record, place: null } : inBlock();
  }

  /** The first block that the node has whole, and its time; null if the node has all of them.
   *
   * No earlier one has a transfer whose timestamp is after `newest`. Both are in Unix milliseconds.
   * @type {() => Promise<{ height: bigint, time: number, newest: number } | null>} */
  async firstBlock() {
    const { network, first } = await this.view();
    if (first === 0n) return null;
    const { first: height, found } = await this.#fromFirst((each) => `/rpc/block/${each}`, "block");
    checkSame(found, { height: `${height}` });
    const time = Number(slotTime(network.rules, numberIn(found, "slot")));
    return { height, time, newest: time + 1000 * Number(network.rules.transactionFutureSeconds) };
  }

  /** Confirmed transfers of an address, the newest first, and where the next page begins or null.
   * @type {(address: string, before?: string | null, limit?: number) => Promise<TransferPage>} */
  async transfers(address, before = null, limit = 25) {
    const query = before === null ? "" : `&before=${encodeURIComponent(before)}`;
    const { status, answer } = await this.ask(`/rpc/address/${address}/transactions?limit=${limit}${query}`);
    // The node has deleted the blocks of this page since it told where that begins.
    if (status === PRUNED) return { transfers: [], next: null };
    if (status !== 200) throw odd();
    checkSame(answer, { address });
    return { transfers: records(answer), next: typeof answer?.next === "string" ? answer.next : null };
  }

  /** Transfers from or to an address that wait for a block, the newest first; at most 100.
   * @type {(address: string) => Promise<TransferRecord[]>} */
  async waiting(address) {
    const { status, answer } = await this.ask(`/rpc/mempool/${address}?limit=100`);
    if (status !== 200) throw odd();
    checkSame(answer, { address });
    return records(answer);
  }

  /** Whether somebody has paid in the blocks that the node has, or in the mempool: state, and the txid where there is one
   * (docs/payments.md).
   * @type {(order: Order) => Promise<Found>} */
  async payment({ recipient, amount, reference, confirmations }) {
    const query = `recipient=${recipient}&amountBaseUnits=${amount}&confirmations=${confirmations}`;
    const path = `/rpc/commerce/payment/${encodeURIComponent(reference)}?${query}`;
    const { first, found } = await this.#fromFirst((each) => (each ? `${path}&sinceHeight=${each}` : path), "payment");
    checkSame(found, { reference, recipient, amount: `${amount}`, requiredConfirmations: confirmations });
    const state = String(found?.state);
    if (!STATES.includes(state)) throw odd();
    return { state, txid: typeof found?.txid === "string" ? found.txid : null, first, told: found };
  }

  /** Submit a signed transfer: "accepted", or "known" if the node had it. Throws `rejected` with the node's reason.
   * @type {(txid: string, transfer: Transfer) => Promise<"accepted" | "known">} */
  async broadcast(txid, transfer) {
    const { status, answer } = await this.ask("/rpc/broadcast", { transaction: transfer });
    const reason = typeof answer?.error === "string" ? answer.error.slice(0, 300) : message("wallet-script.no-reason");
    must(status === 200, "rejected", message("wallet-script.transfer-refused", { reason: inCoins(reason) }));
    must(answer?.txid === txid, "rejected", message("wallet-script.txid-other"));
    if (answer?.state !== "accepted" && answer?.state !== "known") throw odd();
    return answer.state;
  }
}
