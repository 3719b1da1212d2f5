// What a wallet sends back of a payment that it has received.

import { hexOf, sha256, utf8 } from "./bytes.mjs";
import { REFUND } from "./transfer-kind.mjs";
import { wireNumber } from "./units.mjs";

/** @import { Payment } from "./paying.mjs" */
/** @import { TransferRecord } from "./node.mjs" */
/** @import { Payload } from "./transaction.mjs" */

const MOST = 64;
const BEGINNING = 40;
const DIGITS = 16;

/** The reference of the refund of a payment: svcd/commerce/payment_request.py has the rule.
 * @type {(reference: string | null, txid: string) => Promise<string>} */
export async function refundReference(reference, txid) {
  if (reference === null) return REFUND + txid.slice(0, 32);
  if (REFUND.length + reference.length <= MOST) return REFUND + reference;
  const digest = hexOf(await sha256(utf8(reference)));
  return `${REFUND}${reference.slice(0, BEGINNING)}.${digest.slice(0, DIGITS)}`;
}

/** What `own` has refunded to `recipient` under a reference, in base units: by the payments signed here, unless they were
 * refused, and by records of the node.
 * @type {(refund: { recipient: string, reference: string }, own: string, payments: Payment[], records: TransferRecord[]) => bigint} */
export function refundedOf({ recipient, reference }, own, payments, records) {
  /** @type {(payload: Payload | undefined) => boolean} */
  const isRefund = (payload) => payload?.recipient === recipient && payload.paymentReference === reference;
  const there = records.filter(({ senderAddress, payload }) => senderAddress === own && isRefund(payload));
  const here = payments.filter(({ state, transfer }) => state !== "refused" && isRefund(transfer.payload));
  const amounts = new Map(there.map(({ txid, payload }) => [txid, wireNumber(payload?.amount) ?? 0n]));
  for (const { txid, transfer } of here) amounts.set(txid, BigInt(transfer.payload.amount));
  return [...amounts.values()].reduce((sum, units) => sum + units, 0n);
}
