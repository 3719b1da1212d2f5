// Account proofs: an account, or its absence, against the state root of a header (docs/protocol.md 9 and 13).

import { keyOf } from "./key-hash.mjs";
import { hexOf, joined, sha256 } from "./bytes.mjs";
import { bytesOfHex, bytesOfNumber, checkNetwork } from "./chain-proof.mjs";
import { decimal, elements, exactFields, hex, must } from "./strict-json.mjs";

/** @import { Network } from "./networks.mjs" */
/** @typedef {{ balance: bigint, nonce: bigint, heldSince: bigint | null }} ProvenAccount in base units, and a slot. */
/**
 * @typedef {object} AccountProof of which only the form is checked.
 * @property {bigint} height
 * @property {string} block the hash of the block after which the account is shown
 * @property {bigint} key the key hash of the address that was asked for
 * @property {{ key: bigint, account: ProvenAccount } | null} leaf the only account below the end of the path
 * @property {string[]} path the siblings from the deepest one up to the root
 */

const KEY_BITS = 160;
const NEVER_HELD = (1n << 64n) - 1n;

/** The account proof in the member `proof` of an answer; throws InvalidProof.
 * @type {(value: unknown, network: Network) => AccountProof} */
export function parseAccountProof(value, network) {
  const names = ["chainId", "genesisHash", "height", "hash", "address", "leaf", "path"];
  const fields = exactFields(value, names, "proof");
  checkNetwork(fields, network);
  const path = elements(fields.path, "path");
  must(path.length <= KEY_BITS, `path must be an array of at most ${KEY_BITS} hashes`);
  return {
    height: decimal(fields.height, "height"),
    block: hex(fields.hash, 32, "hash"),
    key: key(fields.address, network, "address"),
    leaf: fields.leaf === null ? null : parseLeaf(fields.leaf, network),
    path: path.map((step, at) => hex(step, 32, `path[${at}]`)),
  };
}

/** @type {(value: unknown, network: Network) => { key: bigint, account: ProvenAccount }} */
function parseLeaf(value, network) {
  const fields = exactFields(value, ["address", "balance", "nonce", "heldSince"], "leaf");
  const { address, balance, nonce, heldSince } = fields;
  return {
    key: key(address, network, "the address of leaf"),
    account: {
      balance: decimal(balance, "balance"),
      nonce: decimal(nonce, "nonce"),
      heldSince: heldSince === null ? null : decimal(heldSince, "heldSince"),
    },
  };
}

/** @type {(value: unknown, network: Network, what: string) => bigint} */
function key(value, network, what) {
  const found = typeof value === "string" ? keyOf(value, network.prefix) : null;
  must(found !== null, `${what} is not an address of ${network.name}`);
  return found;
}

/** The account of `address`, or null if it does not exist, after a block that a chain proof shows; throws InvalidProof.
 * @type {(proof: AccountProof, address: string, network: Network,
 *   shown: { hash: string, height: bigint, stateRoot: string }) => Promise<ProvenAccount | null>} */
export async function checkAccount(proof, address, network, { hash, height, stateRoot }) {
  must(proof.key === key(address, network, "address"), "the proof is for another address");
  must(proof.block === hash, `the proof is for block ${proof.block}, not of ${hash}`);
  must(proof.height === height, `the proof says that block ${hash} is at height ${proof.height}; it is at ${height}`);
  const { leaf, path } = proof;
  let node = new Uint8Array(32);
  if (leaf !== null) {
    const near = (leaf.key ^ proof.key) >> BigInt(KEY_BITS - path.length) === 0n;
    must(near, "the account in the proof is not below the end of its path");
    const { balance, nonce, heldSince } = leaf.account;
    const numbers = [balance, nonce, heldSince ?? NEVER_HELD].map((number) => bytesOfNumber(number, 8));
    node = await sha256(joined(new Uint8Array(1), bytesOfNumber(leaf.key, 20), ...numbers));
  }
  for (const [at, step] of path.entries()) {
    const level = path.length - 1 - at;
    const sibling = bytesOfHex(step);
    const pair = (proof.key >> BigInt(KEY_BITS - 1 - level)) & 1n ? [sibling, node] : [node, sibling];
    node = await sha256(joined(Uint8Array.of(1), ...pair));
  }
  must(hexOf(node) === stateRoot, "the path does not lead to the stateRoot of the block");
  return leaf !== null && leaf.key === proof.key ? leaf.account : null;
}
