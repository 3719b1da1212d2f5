// Transfers: canonical text, txid and signature (docs/protocol.md 4, docs/wallets.md "How a transfer is made").

import { addressOf } from "./address.mjs";
import { bytesOf, hexOf, taggedHash, utf8 } from "./bytes.mjs";
import { sign } from "./ed25519.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Key } from "./ed25519.mjs" */
/** @import { Network } from "./networks.mjs" */
/** @typedef {string | number | Values | { [name: string]: Value }} Value of canonical JSON. */
/** @typedef {Value[]} Values */
/** @typedef {{ recipient: string, amount: string, paymentReference?: string }} Payload */
/**
 * @typedef {object} Draft
 * @property {string} recipient
 * @property {string | null} reference
 * @property {bigint} amount
 * @property {bigint} fee
 * @property {bigint} nonce
 * @property {bigint} timestamp in Unix milliseconds
 */
/**
 * @typedef {{ version: number, networkId: number, type: number, senderPublicKey: string, senderAddress: string,
 *   nonce: string, fee: string, timestamp: string, payload: Payload }} Unsigned
 */
/** @typedef {Unsigned & { signature: string }} Transfer */

/** Canonical JSON (RFC 8785) of what transfers and rules hold: objects with ASCII keys, arrays, ASCII strings, integers.
 * @type {(value: Value) => string} */
export function canonical(value) {
  if (typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
}

/** The 32 bytes of the txid of a transfer, signed or not: they are what the sender signs.
 * @type {(transfer: Unsigned & { signature?: string }, network: Pick<Network, "genesisHash">) => Promise<Bytes>} */
export function txidOf(transfer, network) {
  const { signature: _, ...content } = transfer;
  return taggedHash("svc/tx/v2", bytesOf(network.genesisHash), utf8(canonical(content)));
}

/** The nine fields of an unsigned transfer. `draft` has recipient, reference (or null), and amount, fee, nonce and
 * timestamp (Unix milliseconds) as BigInt.
 * @type {(draft: Draft, publicKey: Bytes, network: Network) => Promise<Unsigned>} */
export async function transferOf(draft, publicKey, network) {
  const reference = draft.reference === null ? {} : { paymentReference: draft.reference };
  return {
    version: 2,
    networkId: network.networkId,
    type: 1,
    senderPublicKey: hexOf(publicKey),
    senderAddress: await addressOf(publicKey, network),
    nonce: draft.nonce.toString(),
    fee: draft.fee.toString(),
    timestamp: draft.timestamp.toString(),
    payload: { recipient: draft.recipient, amount: draft.amount.toString(), ...reference },
  };
}

/** The signed transfer and the hex of its txid, which does not cover the signature: some browsers randomise it.
 * @type {(draft: Draft, key: Key, network: Network) => Promise<{ txid: string, transfer: Transfer }>} */
export async function signTransfer(draft, { privateKey, publicKey }, network) {
  const content = await transferOf(draft, publicKey, network);
  const txid = await txidOf(content, network);
  const signature = hexOf(await sign(privateKey, txid));
  return { txid: hexOf(txid), transfer: { ...content, signature } };
}
