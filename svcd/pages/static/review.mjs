// What a person must know before signing, from values alone.

import { coins } from "./amounts.mjs";
import { GREATEST, MINIMUM_FEE } from "./networks.mjs";
import { Problem } from "./problem.mjs";

/** @import { Account, Found, View } from "./node.mjs" */
/** @import { Payment } from "./paying.mjs" */
/** @typedef {{ recipient: string, amount: bigint, fromLink: boolean }} Judged */
/**
 * @typedef {object} Known
 * @property {string} sender
 * @property {Pick<Account, "balance">} account
 * @property {Pick<View, "syncing" | "time">} view
 * @property {bigint} fee
 * @property {bigint} waiting
 * @property {Found | null} paid
 * @property {number} now
 */
/**
 * @typedef {object} Judgement
 * @property {bigint} fee
 * @property {bigint} total
 * @property {bigint} after
 * @property {Problem[]} warnings
 * @property {Problem | null} blocked
 */

const MAX_CLOCK_DIFFERENCE = 5 * 60 * 1000;

/** What transfers that were signed here and are in no block yet will take from the balance, in base units.
 * @type {(payments: Pick<Payment, "state" | "transfer">[]) => bigint} */
export function underWay(payments) {
  return payments
    .filter(({ state }) => state === "signed" || state === "pending")
    .map(({ transfer: { fee, payload, senderAddress } }) => {
      return BigInt(fee) + (payload.recipient === senderAddress ? 0n : BigInt(payload.amount));
    })
    .reduce((sum, units) => sum + units, 0n);
}

/** Judge an intent (`recipient`, `amount`, `fromLink`) by what is known.
 *
 * `known` has sender, account and view of the node, `fee` and `waiting` in base units, `paid` (a payment that somebody has made
 * for the same order, or null) and `now` in Unix milliseconds. The answer has fee, total and balance after in base
 * units, `warnings`, and `blocked`: the Problem for which nothing may be signed, or null.
 * @type {(intent: Judged, known: Known) => Judgement} */
export function judge(intent, known) {
  const toSelf = intent.recipient === known.sender;
  const { fee } = known;
  const total = intent.amount + fee;
  const available = known.account.balance - known.waiting;
  const paid = known.paid === null || known.paid.state === "unpaid" ? null : known.paid;
  const warnings = [];
  if (toSelf) warnings.push(new Problem("self-payment", "The recipient is this wallet: only the fee will be spent."));
  if (fee > MINIMUM_FEE) warnings.push(raised());
  if (paid && !intent.fromLink) warnings.push(alreadyPaid(paid));
  const faults = [
    known.view.syncing &&
      new Problem("node-syncing", "The node is still catching up, and nothing is signed until it is done."),
    paid && intent.fromLink && alreadyPaid(paid),
    Math.abs(known.now - known.view.time) > MAX_CLOCK_DIFFERENCE &&
      new Problem("clock", "The clocks of this device and the node are more than five minutes apart; set them."),
    total > GREATEST && new Problem("amount", "Amount and fee together are more than there can be."),
    total > available && insufficient(total, available),
  ];
  return {
    fee,
    total,
    after: available - (toSelf ? fee : total),
    warnings,
    blocked: faults.find((fault) => fault instanceof Problem) ?? null,
  };
}

/** @type {(total: bigint, available: bigint) => Problem} */
function insufficient(total, available) {
  const missing = total - available;
  const sentence = `The balance is too small: ${coins(missing)} are missing for amount and fee.`;
  return Object.assign(new Problem("insufficient", sentence), { missing });
}

/** @type {() => Problem} */
function raised() {
  return new Problem("fee-raised", `The node suggests this fee, which is above the minimum of ${coins(MINIMUM_FEE)}.`);
}

/** @type {(paid: Found) => Problem} */
function alreadyPaid({ state }) {
  const how = state === "pending" ? "a payment of it is waiting to be confirmed" : `its payment is ${state}`;
  const sentence = `This order is paid already: ${how}. Who pays twice must ask the shop for the money back.`;
  return new Problem("already-paid", sentence);
}
