// What a wallet sends back of a payment that it has received.

import { answerPages } from "./answer-pages.mjs";
import { hexOf, sha256, utf8 } from "./bytes.mjs";
import { signedOf } from "./signed.mjs";
import { REFUND } from "./transfer-kind.mjs";
import { wireNumber } from "./units.mjs";

/** @import { Payment } from "./paying.mjs" */
/** @import { Node, TransferRecord } from "./node.mjs" */
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

/** The transfers to `recipient` under a reference in the mempool and in the blocks from `since` on, whoever made them, as
 * records of the node. Throws what `odd` makes for an answer that makes no sense.
 * @type {(node: Pick<Node, "ask">, refund: { recipient: string, reference: string }, since: bigint, odd: () => Error) =>
 *   Promise<TransferRecord[]>} */
export async function paidUnder(node, { recipient, reference }, since, odd) {
  /** @type {TransferRecord[]} */
  const records = [];
  const query = new URLSearchParams({ recipient, reference, sinceHeight: `${since}`, limit: "100" });
  for await (const { status, answer } of answerPages(node, `/rpc/commerce/payments?${query}`, odd)) {
    if (status !== 200 || !Array.isArray(answer?.payments)) throw odd();
    for (const { txid, sender, amount, reference: paymentReference } of answer.payments) {
      records.push({ txid, senderAddress: sender, payload: { recipient, amount, paymentReference } });
    }
  }
  return records;
}

/** What is proposed as a refund of `amount`: what is left of it, in base units. All of it once nothing is left, for it
 * may be a second payment under the same reference; the review says what was paid before.
 * @type {(amount: bigint, refunded: bigint) => bigint} */
export const restOf = (amount, refunded) => (refunded < amount ? amount - refunded : amount);

/** What `own` has refunded to `recipient` under a reference, in base units: by the payments signed here, unless they were
 * refused, and by records of the node.
 * @type {(refund: { recipient: string, reference: string }, own: string, payments: Payment[], records: TransferRecord[]) => bigint} */
export function refundedOf({ recipient, reference }, own, payments, records) {
  /** @type {(payload: Payload | undefined) => boolean} */
  const isRefund = (payload) => payload?.recipient === recipient && payload.paymentReference === reference;
  const there = records.filter(({ senderAddress, payload }) => senderAddress === own && isRefund(payload));
  const here = payments.filter(({ state, transfer }) => state !== "refused" && isRefund(transfer.payload));
  const amounts = new Map(there.map(({ txid, payload }) => [txid, wireNumber(payload?.amount) ?? 0n]));
  for (const payment of here) {
    // Of what was signed for one payment a block may have an earlier transfer.
    const { txid, transfer } = signedOf(payment).find((each) => amounts.has(each.txid)) ?? payment;
    amounts.set(txid, BigInt(transfer.payload.amount));
  }
  return [...amounts.values()].reduce((sum, units) => sum + units, 0n);
}
