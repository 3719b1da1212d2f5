// Whether what somebody shows as a transfer is one that its sender has signed (docs/protocol.md 4).

import { bytesOf, hexOf } from "./bytes.mjs";
import { verify } from "./ed25519.mjs";
import { addressOf, keyOf } from "./key-hash.mjs";
import { decimal, exactFields, hex, must } from "./strict-json.mjs";
import { REFERENCE, txidOf } from "./transaction.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Network } from "./networks.mjs" */
/** @import { Transfer } from "./transaction.mjs" */

const TRANSFER = [
  "version",
  "networkId",
  "type",
  "senderPublicKey",
  "senderAddress",
  "nonce",
  "fee",
  "timestamp",
  "payload",
  "signature",
];

/** A transfer that has the form of its network; throws InvalidProof.
 * @type {(value: unknown, network: Network) => Transfer} */
export function transferIn(value, network) {
  const fields = exactFields(value, TRANSFER, "transaction");
  const constants = fields.version === 2 && fields.networkId === network.networkId && fields.type === 1;
  must(constants, `the transaction is not a transfer of ${network.chainId}`);
  hex(fields.senderPublicKey, 32, "senderPublicKey");
  hex(fields.signature, 64, "signature");
  decimal(fields.nonce, "nonce");
  decimal(fields.timestamp, "timestamp");
  const { rules } = network;
  must(decimal(fields.fee, "fee") >= rules.minimumFee, `fee must be at least ${rules.minimumFee}`);
  const named = Object.hasOwn(Object(fields.payload), "paymentReference") ? ["paymentReference"] : [];
  const payload = exactFields(fields.payload, ["recipient", "amount", ...named], "payload");
  const { recipient, amount, paymentReference } = payload;
  const isAddress = typeof recipient === "string" && keyOf(recipient, network.prefix) !== null;
  must(isAddress, `recipient is not an address of ${network.name}`);
  must(decimal(amount, "amount") > 0n, "amount must be greater than 0");
  const isReference = typeof paymentReference === "string" && REFERENCE.test(paymentReference);
  must(named.length === 0 || isReference, "paymentReference must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -");
  return /** @type {Transfer} */ (value);
}

/** The transfer from or to `party` with this txid that a record of a node is about, which may say more of it; throws
 * InvalidProof.
 * @type {(record: object, expected: { txid: string, party: string }, network: Network) => Promise<Transfer>} */
export async function signedIn(record, { txid, party }, network) {
  const members = Object.entries(record).filter(([name]) => TRANSFER.includes(name));
  const transfer = transferIn(Object.fromEntries(members), network);
  must(hexOf(await checkedTxid(transfer, network)) === txid, "the transfer has another txid");
  must([transfer.senderAddress, transfer.payload.recipient].includes(party), "the transfer is one of others");
  return transfer;
}

/** The txid of a transfer that its sender has signed; throws InvalidProof.
 * @type {(transfer: Transfer, network: Network) => Promise<Bytes>} */
export async function checkedTxid(transfer, network) {
  const key = bytesOf(transfer.senderPublicKey);
  const own = transfer.senderAddress === (await addressOf(key, network));
  must(own, "senderAddress is not the address of senderPublicKey");
  const txid = await txidOf(transfer, network);
  must(await verify(key, txid, bytesOf(transfer.signature)), "the signature of the transfer is not its sender's");
  return txid;
}
