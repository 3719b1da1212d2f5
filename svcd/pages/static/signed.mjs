// Which transfers were signed for a payment, how long each may still be paid, and which nonce the next one may have.
//
// One payment is never two, whatever a node answers: transfers that are signed for one intent share one nonce, and of
// two transfers with one nonce a chain holds at most one. The word of a node alone never releases that nonce.

import { Problem } from "./problem.mjs";
import { localTime, message } from "./texts.mjs";
import { MARGIN, voidAt } from "./transaction.mjs";

/** @import { Network } from "./networks.mjs" */
/** @import { Account } from "./node.mjs" */
/** @import { Payment } from "./paying.mjs" */
/** @import { Transfer } from "./transaction.mjs" */
/** @typedef {{ txid: string, transfer: Transfer }} Signed */
/** @typedef {{ id: string, recipient: string, amount: bigint, reference: string | null }} Terms of an intent. */

/** Everything that was signed for the intent of a payment, the one that counts first.
 * @type {(payment: Pick<Payment, "txid" | "transfer" | "earlier">) => Signed[]} */
export const signedOf = ({ txid, transfer, earlier = [] }) => [{ txid, transfer }, ...earlier];

/** The payment with another of its transfers as the one that counts.
 * @type {(payment: Payment, txid: string) => Payment} */
export function countedAs(payment, txid) {
  const all = signedOf(payment);
  const [counts] = all.filter((each) => each.txid === txid);
  return { ...payment, ...counts, earlier: all.filter((each) => each !== counts) };
}

/** Whether two records of a payment hold the same transfers: if not, one was made before the intent was signed again.
 * @type {(one: Payment, other: Payment) => boolean} */
export function haveSameSigned(one, other) {
  const [first, second] = [one, other].map((payment) =>
    signedOf(payment)
      .map(({ txid }) => txid)
      .sort()
      .join(),
  );
  return first === second;
}

/** Until when a block may take a transfer, by the clock of this device, in Unix milliseconds.
 * @type {(signed: Signed, network: Network) => number} */
const lastTime = ({ transfer }, network) => Number(voidAt(transfer, network) + MARGIN);

/** Whether a block may still take a transfer, by the clock of this device.
 * @type {(signed: Signed, now: number, network: Network) => boolean} */
const mayBePaid = (signed, now, network) => now <= lastTime(signed, network);

/** Whether the node has named a block that holds the payment.
 * @type {(payment: Payment) => boolean} */
const isInBlock = ({ state }) => state === "confirming" || state === "confirmed";

/** @type {(payment: Payment) => bigint} */
export const nonceOf = ({ transfer }) => BigInt(transfer.nonce);

/** The payment of another intent that has the nonce, and is not refused.
 * @type {(own: Payment[], nonce: bigint, id: string | null) => Payment | null} */
export function holderOf(own, nonce, id) {
  return own.find((each) => each.id !== id && each.state !== "refused" && nonceOf(each) === nonce) ?? null;
}

/** The nonce for an intent that was never signed: the node's next one that no payment from here has.
 * @type {(account: Account, own: Payment[]) => bigint} */
export function nextNonce({ pendingNonce }, own) {
  let nonce = pendingNonce;
  while (holderOf(own, nonce, null) !== null) nonce += 1n;
  return nonce;
}

/** The nonce under which a refused payment may be signed again; throws why there is none at present.
 *
 * It is the payment's own, as long as that is free; `nonce-waits` if another transfer waits under it, which would be
 * replaced. If the node says that another transfer has used it, the payment itself may have been paid, and the node may
 * hide that: throws `nonce-used` until all that was signed for the payment is too old for a block by the clock of this
 * device, and from then on `nonce-ask`, unless the person has chosen `anew`.
 * @type {(payment: Payment, known: { account: Account, own: Payment[], now: number, network: Network }, anew: boolean) => bigint} */
export function nonceAgain(payment, { account, own, now, network }, anew) {
  const nonce = nonceOf(payment);
  const holder = holderOf(own, nonce, payment.id);
  const used = account.nonce > nonce || (holder !== null && isInBlock(holder));
  if (!used && (holder !== null || account.pendingNonce > nonce)) {
    throw new Problem("nonce-waits", message("wallet-script.again-waits"));
  }
  if (!used) return nonce;
  const until = Math.max(...signedOf(payment).map((signed) => lastTime(signed, network)));
  if (now <= until) throw new Problem("nonce-used", message("wallet-script.again-used", { time: localTime(until) }));
  if (!anew) throw new Problem("nonce-ask", message("wallet-script.again-ask"));
  return nextNonce(account, own);
}

/** Whether a payment was refused, and a block may take it all the same.
 * @type {(payment: Payment, now: number, network: Network) => boolean} */
export const isUnsettled = (payment, now, network) =>
  payment.state === "refused" && signedOf(payment).some((signed) => mayBePaid(signed, now, network));

/** The payments of other intents with the same recipient, amount and reference.
 * @type {(intent: Terms, own: Payment[]) => Payment[]} */
function sameTerms({ id, recipient, amount, reference }, own) {
  return own.filter(
    ({ id: other, transfer: { payload } }) =>
      other !== id &&
      payload.recipient === recipient &&
      (payload.paymentReference ?? null) === reference &&
      BigInt(payload.amount) === amount,
  );
}

/** A payment of another intent with the same recipient, amount and reference that was or may still be paid, or null.
 *
 * Without a reference the same payment may well be meant twice, so one that is in a block does not count.
 * @type {(intent: Terms, own: Payment[], now: number, network: Network) => Payment | null} */
export function signedBefore(intent, own, now, network) {
  const isMeant = (/** @type {Payment} */ each) =>
    each.state === "refused" ? isUnsettled(each, now, network) : intent.reference !== null || !isInBlock(each);
  return sameTerms(intent, own).find(isMeant) ?? null;
}

/** The refused payment with the same terms that may be paid besides a transfer with this nonce, or null.
 * @type {(intent: Terms, own: Payment[], now: number, nonce: bigint, network: Network) => Payment | null} */
export function secondOf(intent, own, now, nonce, network) {
  const isOther = (/** @type {Signed} */ each) => mayBePaid(each, now, network) && BigInt(each.transfer.nonce) !== nonce;
  return sameTerms(intent, own).find((each) => each.state === "refused" && signedOf(each).some(isOther)) ?? null;
}

/** A refused payment that may be paid before a transfer with this nonce, because the node passes its nonce over, or null.
 * @type {(own: Payment[], now: number, nonce: bigint, network: Network) => Payment | null} */
export function passedOver(own, now, nonce, network) {
  const free = (/** @type {Payment} */ each) => holderOf(own, nonceOf(each), each.id) === null;
  return own.find((each) => isUnsettled(each, now, network) && nonceOf(each) < nonce && free(each)) ?? null;
}
