// What a person must know before signing, from values alone.

import { coins } from "./digits.mjs";
import { blockSeconds } from "./built-in.mjs";
import { Problem } from "./problem.mjs";
import { passedOver, secondOf, signedBefore } from "./signed.mjs";
import { localTime, message } from "./texts.mjs";
import { possibleAmounts } from "./transaction.mjs";
import { GREATEST } from "./units.mjs";

/** @import { Network } from "./networks.mjs" */
/** @import { Account, Found, View } from "./node.mjs" */
/** @import { Payment } from "./paying.mjs" */
/** @typedef {Pick<Payment, "id" | "state" | "transfer">} OwnPayment */
/** @typedef {{ id: string, recipient: string, amount: bigint, reference: string | null, fromLink: boolean,
 *   until?: number | null }} Judged */
/**
 * @typedef {object} Known
 * @property {string} sender
 * @property {Pick<View, "network" | "syncing" | "time" | "tipTime">} view
 * @property {bigint} fee
 * @property {bigint} available
 * @property {bigint | null} received
 * @property {Found | null} paid
 * @property {Payment[]} own
 * @property {number} now
 * @property {bigint} nonce of the transfer
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
const OLD_TIP = 3 * 60 * 60 * 1000;
/** How many times as long as usual the newest block may be the newest one, where blocks take long. */
const LONG = 20;

/** How old the newest block may be, in milliseconds.
 * @type {(network: Network) => number} */
const oldAfter = (network) => Math.max(OLD_TIP, LONG * 1000 * blockSeconds(network));

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

/** What a new transfer may spend, in base units: the least that the node and the payments signed here leave.
 *
 * The node counts what waits there, also what another device has signed. `own` are the payments signed here, some of
 * which the node may not have; of those, the new transfer takes the place of that with the intent `id`.
 * @type {(account: Pick<Account, "balance" | "pendingBalance">, own: OwnPayment[], id?: string | null) => bigint} */
export function spendable({ balance, pendingBalance }, own, id = null) {
  const here = balance - underWay(own.filter((payment) => payment.id !== id));
  const there = pendingBalance + underWay(own.filter((payment) => payment.id === id));
  return here < there ? here : there;
}

/** Whether the recipient's balance must be known: the amount alone is less than each account must have.
 * @type {(intent: Pick<Judged, "recipient" | "amount">, sender: string, network: Network) => boolean} */
export const needsBalance = ({ recipient, amount }, sender, { rules }) =>
  recipient !== sender && amount < rules.accountMinimum;

/** Judge an intent by what is known.
 *
 * `known` has the sender, the node's view, `fee` and `available` (see `spendable`) in base units, `received` (the
 * recipient's balance in base units, or null if it does not matter), `paid` (a payment that somebody has made for the
 * same order, or null), the payments that were signed here (`own`), `now`, the time of this device in Unix
 * milliseconds, and the `nonce` that the transfer would have. The answer has fee, total and balance after in base units,
 * `warnings`, and `blocked`: the Problem for which nothing may be signed, or null.
 * @type {(intent: Judged, known: Known) => Judgement} */
export function judge(intent, known) {
  const { network, time, tipTime } = known.view;
  const { accountMinimum: least, minimumFee } = network.rules;
  const toSelf = intent.recipient === known.sender;
  const { fee, available } = known;
  const received = known.received ?? least;
  const { least: needed, most } = possibleAmounts({ minimum: least, fee, available, received });
  const total = intent.amount + fee;
  const paid = known.paid === null || known.paid.state === "unpaid" ? null : known.paid;
  const warnings = [];
  if (toSelf) warnings.push(new Problem("self-payment", message("wallet-script.self-payment")));
  if (fee > minimumFee) warnings.push(raised(minimumFee));
  if (paid && !intent.fromLink) warnings.push(alreadyPaid(paid));
  if (known.paid?.state === "unpaid" && known.paid.first > 0n) warnings.push(maybePaid(known.paid));
  const { own, now, nonce } = known;
  const before = paid ? null : signedBefore(intent, own, now, network);
  if (before && !intent.fromLink) warnings.push(alreadySigned(before));
  const others = own.filter(({ id }) => id !== intent.id);
  const passed = passedOver(others, now, nonce, network);
  if (passed && !before) warnings.push(unsettled(passed));
  const second = secondOf(intent, own, now, nonce, network);
  const faults = [
    known.view.syncing &&
      new Problem("node-syncing", message("wallet-script.node-syncing")),
    paid && intent.fromLink && alreadyPaid(paid),
    before && intent.fromLink && alreadySigned(before),
    second && alreadySigned(second),
    Math.max(Math.abs(known.now - time), tipTime - known.now) > MAX_CLOCK_DIFFERENCE &&
      new Problem("clock", message("wallet-script.clock")),
    // A devnet has blocks when it is asked for them.
    network.name !== "devnet" && known.now - tipTime > oldAfter(network) && oldTip(tipTime),
    typeof intent.until === "number" &&
      time >= intent.until &&
      new Problem("link-expired", message("wallet-script.link-expired")),
    total > GREATEST && new Problem("amount", message("wallet-script.amount-total")),
    intent.amount > most && insufficient(intent, intent.amount - most, least),
    intent.amount < needed && tooLittle(received, least),
  ];
  return {
    fee,
    total,
    after: available - (toSelf ? fee : total),
    warnings,
    blocked: faults.find((fault) => fault instanceof Problem) ?? null,
  };
}

/** @type {(intent: Judged, missing: bigint, least: bigint) => Problem} */
function insufficient({ amount, fromLink }, missing, least) {
  const sentence = message("wallet-script.insufficient", { missing: coins(missing), least: coins(least) });
  const most = amount - missing;
  // The amount of a link is the shop's.
  const advice = most > 0n && !fromLink ? ` ${message("wallet-script.insufficient-most", { most: coins(most) })}` : "";
  return Object.assign(new Problem("insufficient", sentence + advice), { missing });
}

/** @type {(received: bigint, minimum: bigint) => Problem} */
function tooLittle(received, minimum) {
  const [has, least, needed] = [received, minimum, minimum - received].map(coins);
  return new Problem("recipient-minimum", message("wallet-script.recipient-minimum", { has, least, needed }));
}

/** @type {(least: bigint) => Problem} */
function raised(least) {
  return new Problem("fee-raised", message("wallet-script.fee-raised", { least: coins(least) }));
}

/** @type {Record<string, string>} */
const ALREADY_PAID = {
  pending: "wallet-script.already-paid-pending",
  confirming: "wallet-script.already-paid-confirming",
  confirmed: "wallet-script.already-paid-confirmed",
};

/** @type {(paid: Found) => Problem} */
function alreadyPaid({ state }) {
  return new Problem("already-paid", message(ALREADY_PAID[state]));
}

/** @type {(paid: Found) => Problem} */
function maybePaid({ first }) {
  return new Problem("pruned", message("wallet-script.maybe-paid", { height: first }));
}

/** @type {(passed: Payment) => Problem} */
function unsettled({ signedAt }) {
  return new Problem("unsettled", message("wallet-script.unsettled", { time: localTime(signedAt) }));
}

/** The Problem that a payment with the same terms was signed before.
 * @type {(before: Payment) => Problem} */
export function alreadySigned({ signedAt }) {
  return new Problem("already-signed", message("wallet-script.already-signed", { time: localTime(signedAt) }));
}

/** @type {(tipTime: number) => Problem} */
function oldTip(tipTime) {
  return new Problem("tip-old", message("wallet-script.tip-old", { time: localTime(tipTime) }));
}
