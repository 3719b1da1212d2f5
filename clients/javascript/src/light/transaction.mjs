// Transfers: content, txid, signature, time and amounts (docs/protocol.md 4, docs/wallets.md "How a transfer is made").

import { bytesOf, hexOf, taggedHash, utf8 } from "./bytes.mjs";
import { canonical } from "./canonical-json.mjs";
import { addressOf } from "./key-hash.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Network } from "./networks.mjs" */
/** @typedef {{ recipient: string, amount: string, paymentReference?: string }} Payload */
/**
 * @typedef {object} Draft
 * @property {string} recipient
 * @property {string | null} reference
 * @property {bigint} amount in base units
 * @property {bigint} fee in base units
 * @property {bigint} nonce
 * @property {bigint} timestamp in Unix milliseconds
 */
/**
 * @typedef {{ version: number, networkId: number, type: number, senderPublicKey: string, senderAddress: string,
 *   nonce: string, fee: string, timestamp: string, payload: Payload }} Unsigned
 */
/** @typedef {Unsigned & { signature: string }} Transfer */

/** The form of a reference in a transfer. */
export const REFERENCE = /^[A-Za-z0-9._:-]{1,64}$/;

/** The 32 bytes of the txid of a transfer, signed or not: they are what the sender signs.
 * @type {(transfer: Unsigned & { signature?: string }, network: Pick<Network, "genesisHash">) => Promise<Bytes>} */
export function txidOf(transfer, network) {
  const { signature: _, ...content } = transfer;
  return taggedHash("svc/tx/v2", bytesOf(network.genesisHash), utf8(canonical(content)));
}

/** The nine fields of an unsigned transfer.
 * @type {(draft: Draft, publicKey: Bytes, network: Network) => Promise<Unsigned>} */
export async function contentOf(draft, publicKey, network) {
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

/** The signed transfer of the key whose signatures `sign` makes, and the hex of its txid, which does not cover the
 * signature: some platforms randomise it.
 * @type {(draft: Draft, publicKey: Bytes, sign: (message: Bytes) => Promise<Bytes>, network: Network) =>
 *   Promise<{ txid: string, transaction: Transfer }>} */
export async function signedTransfer(draft, publicKey, sign, network) {
  const content = await contentOf(draft, publicKey, network);
  const txid = await txidOf(content, network);
  return { txid: hexOf(txid), transaction: { ...content, signature: hexOf(await sign(txid)) } };
}

/** By how many milliseconds the clocks of this device and of a block producer may differ. */
export const MARGIN = 3_600_000n;

/** From when on no block at its time can include a transfer, in Unix milliseconds.
 * @type {(transfer: Pick<Transfer, "timestamp">, network: Pick<Network, "rules">) => bigint} */
export const voidAt = ({ timestamp }, { rules }) => BigInt(timestamp) + 1000n * rules.transactionPastSeconds;

/** The least and the most base units that a transfer may move, so that both accounts have the account minimum after it.
 *
 * `available` is the sender's balance without what its waiting transfers spend, `received` the recipient's.
 * @type {(known: { minimum: bigint, fee: bigint, available: bigint, received: bigint }) =>
 *   { least: bigint, most: bigint }} */
export const possibleAmounts = ({ minimum, fee, available, received }) => ({
  least: received < minimum ? minimum - received : 1n,
  most: available - fee - minimum,
});
