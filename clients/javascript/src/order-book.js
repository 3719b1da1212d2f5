// What happens to the open orders of a shop, from the answers of its feed: no input and output.
//
// The design is that of the client for Python. A store has three things: where the feed is (a place), a row for each
// open order, and the events that nobody has been told. The row has the transfers under the order's reference that
// blocks of the chain have, and what the events so far have said. An answer of the feed (`answerOf`) is used in one of
// two ways.
//
// - If it has entries, or may not reach the tip, it is only recorded (`record`): transfers above a rewind leave their
//   rows, new ones join theirs, and each such row is marked to be evaluated. Nothing is said yet, for what a page
//   undoes a later one may bring back.
// - If it reaches the tip (`reachesTip`), the orders that it may affect are evaluated (`evaluate`): the marked ones,
//   those that wait in the mempool or have waited there, those whose payment is deeper than before, and those whose
//   deadline has come. An evaluation compares what a row has said with what is so now, as a watch of svcd does, and
//   gives the order afterwards and its events. To evaluate again without a change says nothing.
//
// Rows and place are stored in one transaction with the events that follow, so that a kill at any instant leaves either
// both or none; the same answer comes again then. No step looks at orders that it does not affect: a row says at which
// height of the tip (`awaits`) and at which time (`due`) it is to be evaluated, and how far up its transfers are
// (`top`). An event has the body of the webhook that a watch would send.

import { hexOf, sha256, utf8 } from "./light/bytes.mjs";
import { formatAmount } from "./light/units.mjs";
import { InvalidAnswer, StoreError } from "./errors.js";
import { BEHIND_ALL, LISTED } from "./members.js";

/** Entries of an answer at most. */
export const PAGE = 1000;
/** The `awaits` of a row that is evaluated with the next answer that reaches the tip. */
const MARKED = 0;
const BLOCKS_AFTER_CONFIRMATION = 30;
/** Milliseconds after a deadline for which a block of a time before it is waited for: what has expired stays so. */
const ON_THE_WAY = 60_000;
/** Events about mismatches of an order, at most: no sender can make a shop read them without end. */
const MISMATCHES = 16;
/** After so many, transfers of less than a tenth of the amount get none: they must not hide a mistake of a buyer. */
const BEFORE_SMALL = 8;
const KEPT_EXACT = 32;
const KEPT_OTHERS = 100;
const SHOWN = 10;

// The place in the feed

/** The place of a shop that has read nothing.
 *
 * `after` is the cursor, null before the first answer; `told` height and position up to which everything has been told;
 * `tip` the height of the tip of the last answer; `reached` the hash of the tip up to which everything had been told,
 * when that was known last; `step` how often the store was written: two programs that read the feed for one store would
 * lose what the other does.
 */
export const firstPlace = (recipient, genesis, since) => ({
  recipient,
  genesis,
  since,
  after: null,
  told: [-1, BEHIND_ALL],
  tip: -1,
  reached: null,
  step: 0,
});

const isCount = (value, least = 0) => Number.isSafeInteger(value) && value >= least;
const isText = (value) => typeof value === "string";

/** The place in a text of a store; throws StoreError. */
export function placeOf(text) {
  const place = parsed(text);
  const { recipient, genesis, since, after, told, tip, reached, step } = place ?? {};
  const texts = [recipient, genesis, after ?? "", reached ?? ""].every(isText);
  const counts = isCount(since) && isCount(step) && isCount(tip, -1);
  const right = texts && counts && Array.isArray(told) && isCount(told[0], -1) && isCount(told[1]);
  if (!right) throw new StoreError("the store of open orders is damaged: the place in the feed cannot be read");
  return place;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const must = (truth, sentence) => {
  if (!truth) throw new InvalidAnswer(sentence);
};

/** Whether one place, height and position, is behind another one. */
const isBehind = (one, other) => one[0] > other[0] || (one[0] === other[0] && one[1] > other[1]);

/** What a page of the feed says; throws InvalidAnswer unless it goes on from `place`. */
export function answerOf({ entries, pending, next, tip, node }, place) {
  const rewind = entries[0]?.type === "rewind" ? Number(entries[0].height) : null;
  const payments = entries
    .slice(rewind === null ? 0 : 1)
    .map(({ txid, reference = null, amount, sender, height, position, hash, time }) => {
      return { txid, reference, amount, sender, height: Number(height), position, hash, time: Number(time) };
    });
  const height = Number(tip.height);
  must(rewind === null || rewind < place.tip, "the feed rewinds to where it has not been");
  must(height >= place.tip, "the chain of the feed is shorter than it was");
  const told = rewind === null ? place.told : [rewind, BEHIND_ALL];
  const begin = told[0] >= place.since ? told : [place.since - 1, BEHIND_ALL];
  const follows = payments.length === 0 || isBehind([payments[0].height, payments[0].position], begin);
  must(follows, "the entries of the feed are not in the order of the chain");
  must(entries.length === 0 || next !== place.after, "the feed begins again");
  const waiting = pending.map(({ txid, reference = null, amount, arrivalTime }) => {
    return { txid, reference, amount, arrival: Number(arrivalTime) };
  });
  return { rewind, payments, waiting, next, tip: { height, hash: tip.hash }, synced: node.synced };
}

/** Whether it is certain that the feed has nothing more to tell up to the tip of the answer.
 *
 * An answer with entries may be followed by more, and so may one without, where the address has sent many transfers.
 */
export function reachesTip(place, { rewind, payments, next, tip }) {
  const nothing = rewind === null && payments.length === 0;
  return nothing && (next === place.after || tip.hash === place.reached);
}

/** The place after an answer. */
export function moved(place, answer) {
  const { rewind, payments, next, tip } = answer;
  let told = rewind === null ? place.told : [rewind, BEHIND_ALL];
  const last = payments.at(-1);
  if (last !== undefined) told = [last.height, last.position];
  const reached = reachesTip(place, answer) ? tip.hash : null;
  if (reached !== null) told = [tip.height, BEHIND_ALL];
  return { ...place, after: next, told, tip: tip.height, reached };
}

// Orders

/** When an order expires without a payment, in Unix milliseconds; null for never. */
const endOf = ({ payUntil }) => (payUntil === null ? null : payUntil + ON_THE_WAY);

/** An order of which nothing is known yet: `order` is a checked one, `payUntil` the deadline, `added` the time. */
export const newOrder = ({ reference, amount, confirmations, sinceHeight }, payUntil, added) => ({
  reference,
  amount,
  confirmations,
  sinceHeight,
  payUntil,
  added,
  /** What events have said. */
  state: "unpaid",
  /** The payment as the newest event has it: txid, block and confirmations of a transfer in a block, or null. */
  told: null,
  /** How often the payment was reorganised. */
  epoch: 0,
  /** Of the newest event. */
  sequence: 0,
  /** Below this height a confirmed payment that was undone can return: the order does not expire. */
  closeHeight: null,
  expired: false,
  /** The txids that have had a `payment.mismatched`. */
  reported: [],
  /** Those under its reference on the chain, in the order of the chain; the first ones, if there are very many. */
  transfers: [],
  awaits: null,
  due: endOf({ payUntil }),
});

/** The terms of an order, without what is known about it. */
export const termsIn = ({ reference, amount, confirmations, sinceHeight, payUntil }) =>
  JSON.stringify([reference, amount, confirmations, sinceHeight, payUntil]);

/** The row for a store. */
export function rowOf({ reference, awaits, due, ...content }) {
  return { reference, text: JSON.stringify(content), awaits, due, top: content.transfers.at(-1)?.height ?? null };
}

/** The order in a row of a store; throws StoreError. */
export function orderOf({ reference, text, awaits, due }) {
  const content = parsed(text);
  const right = isText(content?.amount) && isText(content.state) && Array.isArray(content.transfers);
  if (!right) throw new StoreError(`the store of open orders is damaged: '${reference}' cannot be read`);
  return { reference, ...content, awaits, due };
}

/** The orders that the entries of an answer change, marked to be evaluated.
 *
 * `orders` has by reference those with a payment in the answer, and those with one above its rewind. Throws
 * InvalidAnswer if a transfer comes a second time.
 */
export function record(orders, { rewind, payments }) {
  const changed = new Map();
  const change = (order, transfers) => changed.set(order.reference, { ...order, transfers, awaits: MARKED });
  for (const order of rewind === null ? [] : orders.values()) {
    const kept = order.transfers.filter(({ height }) => height <= rewind);
    if (kept.length < order.transfers.length) change(order, kept);
  }
  for (const { reference, ...paid } of payments) {
    const order = changed.get(reference) ?? orders.get(reference);
    if (order === undefined || paid.height < Number(order.sinceHeight ?? 0)) continue;
    const again = order.transfers.some(({ txid }) => txid === paid.txid);
    must(!again, "the feed tells a transfer a second time");
    const exact = paid.amount === order.amount;
    const alike = order.transfers.filter(({ amount }) => (amount === order.amount) === exact);
    if (alike.length < (exact ? KEPT_EXACT : KEPT_OTHERS)) change(order, [...order.transfers, paid]);
  }
  return [...changed.values()];
}

/** What there is besides the transfers on the chain when orders are evaluated, by an answer that reaches the tip.
 *
 * `waiting` has the transfers in the mempool by reference, the oldest first; unless `allWaiting`, one that is not among
 * them may wait all the same. `now` is in Unix milliseconds; with `mayEnd` what is over by it may expire for good.
 */
export function momentOf({ tip, waiting }, now, mayEnd) {
  const byReference = new Map();
  for (const each of waiting) {
    if (each.reference === null) continue;
    const listed = byReference.get(each.reference);
    if (listed === undefined) byReference.set(each.reference, [each]);
    else listed.push(each);
  }
  return { tip, now, mayEnd, waiting: byReference, allWaiting: waiting.length < LISTED };
}

/** What there is of an order at a moment; with `late` its payment came after the deadline, and does not count. */
function see(order, moment) {
  const known = new Set(order.transfers.map(({ txid }) => txid));
  const listed = (moment.waiting.get(order.reference) ?? []).filter(({ txid }) => !known.has(txid));
  const isExact = ({ amount }) => amount === order.amount;
  const found = {
    moment,
    exact: order.transfers.filter(isExact),
    others: order.transfers.filter((each) => !isExact(each)),
    waiting: listed.filter(isExact),
    otherWaiting: listed.filter((each) => !isExact(each)),
  };
  return seenAs(order, found, !order.expired && isLate(order, found));
}

function seenAs({ confirmations: required }, found, late) {
  const paid = late ? null : (found.exact[0] ?? null);
  const pending = late || paid !== null ? null : (found.waiting[0] ?? null);
  const confirmations = paid === null ? 0 : found.moment.tip.height - paid.height + 1;
  let state = pending === null ? "unpaid" : "pending";
  if (paid !== null) state = confirmations >= required ? "confirmed" : "confirming";
  return { ...found, late, paid, pending, confirmations, state };
}

/** Whether a payment that was not seen before came after the deadline: to the mempool, or in a block. */
function isLate({ payUntil, state, told, epoch }, { exact, waiting, moment }) {
  if (payUntil === null || state !== "unpaid" || told !== null || epoch > 0) return false;
  if (exact.length > 0) return exact[0].time >= payUntil;
  return waiting.length > 0 && Math.min(waiting[0].arrival, moment.now) >= payUntil;
}

/** An order while it is evaluated, and the events of this evaluation. */
class Evaluation {
  events = [];

  constructor(order, seen, shop) {
    Object.assign(this, { order, seen, shop });
  }

  /** Say that the payment is now in `state`. */
  emit(name, state, more = {}) {
    const { confirmations, state: previous } = this.order;
    const reorged = name === "payment.reorged" ? 1 : 0;
    const further = Math.max(BLOCKS_AFTER_CONFIRMATION, 2 * confirmations);
    const closeHeight = name === "payment.confirmed" ? this.seen.moment.tip.height + further : this.order.closeHeight;
    const { epoch, sequence } = this.order;
    this.order = { ...this.order, state, epoch: epoch + reorged, sequence: sequence + 1, closeHeight };
    this.events.push(eventOf(this, name, previous, this.seen.state, more));
  }

  /** Say that a transfer does not pay the order, whose state stays as it is. */
  report({ txid, sender, amount }, kind, last) {
    const { sequence, reported, state } = this.order;
    this.order = { ...this.order, sequence: sequence + 1, reported: [...reported, txid] };
    const mismatch = { txid, sender, ...coins(amount), kind, ...(last ? { more: true } : {}) };
    this.events.push(eventOf(this, "payment.mismatched", state, state, { mismatch }));
  }
}

/** The order afterwards, and its events without their ids, as svcd/commerce/watch.py has them for a watch.
 *
 * `completed` gives them their ids. `shop` has the `recipient` and the `network`.
 */
export function evaluate(order, moment, shop) {
  const evaluation = new Evaluation(order, see(order, moment), shop);
  if (!order.expired) {
    evaluatePayment(evaluation);
    evaluateDeadline(evaluation);
  }
  // A late payment does not count, but it is there.
  evaluation.seen = seenAs(order, evaluation.seen, false);
  reportMismatches(evaluation);
  return { order: scheduled(evaluation.order, moment), events: evaluation.events };
}

function evaluatePayment(evaluation) {
  const { order: before, seen } = evaluation;
  const { state, paid, confirmations } = seen;
  const { told } = before;
  const confirmed = state === "confirmed";
  if (told === null) {
    if (paid !== null) evaluation.emit(confirmed ? "payment.confirmed" : "payment.confirming", state);
    else if (state === "pending" && before.state === "unpaid") evaluation.emit("payment.pending", state);
    else if (state === "unpaid" && before.state === "pending" && seen.moment.allWaiting)
      evaluation.emit("payment.dropped", state, { dropped: { reason: "unknown" } });
  } else if (paid === null || paid.txid !== told.txid || paid.hash !== told.hash) {
    // What is confirmed again gets a second event, because shops hand out goods on `confirmed`.
    evaluation.emit("payment.reorged", confirmed ? "confirming" : state);
    if (confirmed) evaluation.emit("payment.confirmed", state);
  } else if (before.state === "confirming" && confirmed) evaluation.emit("payment.confirmed", state);
  else if (before.state === "confirming" && confirmations > told.confirmations)
    evaluation.emit("payment.confirming", state);
  const now = paid === null ? null : { txid: paid.txid, hash: paid.hash, confirmations };
  evaluation.order = { ...evaluation.order, told: now };
}

function evaluateDeadline(evaluation) {
  const { order, seen } = evaluation;
  const { tip, now, mayEnd, allWaiting } = seen.moment;
  const end = endOf(order);
  if (end === null || order.state !== "unpaid" || now < end) return;
  if (!mayEnd || !allWaiting || tip.height < (order.closeHeight ?? 0)) return;
  evaluation.emit("payment.expired", order.state);
  evaluation.order = { ...evaluation.order, expired: true };
}

const byChain = (one, other) => one.height - other.height || one.position - other.position;
const ascending = (one, other) => (one < other ? -1 : one > other ? 1 : 0);

function reportMismatches(evaluation) {
  const { order, seen } = evaluation;
  const amount = BigInt(order.amount);
  const sorted = [...seen.others].sort(byAmount);
  const less = sorted.filter((each) => BigInt(each.amount) < amount);
  const more = sorted.filter((each) => BigInt(each.amount) > amount);
  const nearest = [...less.slice(-MISMATCHES - 1), ...more.slice(0, MISMATCHES + 1)];
  for (const paid of [...seen.exact, ...nearest].sort(byChain)) {
    const units = BigInt(paid.amount);
    let kind = units < amount ? "too-little" : units > amount ? "too-much" : null;
    if (kind === null && paid.txid !== seen.exact[0].txid) kind = "duplicate";
    else if (kind === null && order.expired) kind = "late";
    const { reported } = evaluation.order;
    const most = units * 10n < amount ? BEFORE_SMALL : MISMATCHES;
    if (kind !== null && reported.length < most && !reported.includes(paid.txid))
      evaluation.report(paid, kind, reported.length + 1 === MISMATCHES);
  }
}

const byAmount = (one, other) => ascending(BigInt(one.amount), BigInt(other.amount)) || byChain(one, other);

/** The order with the height and the time at which it is to be evaluated although no transfer comes or goes. */
function scheduled(order, { tip, now }) {
  let [awaits, due] = [null, null];
  const { expired, state, closeHeight } = order;
  const end = endOf(order);
  if (!expired && state === "pending") awaits = MARKED;
  else if (!expired && state === "confirming") awaits = tip.height + 1;
  else if (!expired && state === "unpaid" && end !== null) {
    const closed = tip.height >= (closeHeight ?? 0);
    due = now < end || closed ? end : null;
    awaits = closed ? null : closeHeight;
  }
  return { ...order, awaits, due };
}

// Events

const coins = (amount) => ({ amount, amountSvc: formatAmount(amount) });

/** An event of an order, without its id. */
function eventOf({ order, seen, shop: { recipient, network } }, event, previousState, state, more) {
  const { moment } = seen;
  const tip = { height: String(moment.tip.height), hash: moment.tip.hash };
  const { reference, added, epoch, sequence } = order;
  return {
    id: `${recipient}.${reference}.${added}.${epoch}.${sequence}`,
    event,
    createdAt: String(moment.now),
    networkId: network.networkId,
    chainId: network.chainId,
    genesisHash: network.genesisHash,
    subscriptionId: reference,
    epoch,
    sequence,
    initial: false,
    previousState,
    payment: paymentOf(order, recipient, seen, state),
    tip,
    node: { ...tip, synced: true },
    ...more,
  };
}

/** The text of an event of `evaluate`, with an id that the same event always has. */
export async function completed(event) {
  const hash = hexOf(await sha256(utf8(event.id)));
  return JSON.stringify({ ...event, id: `svcevt_${hash.slice(0, 32)}` });
}

function paymentOf({ reference, amount, confirmations: required, sinceHeight }, recipient, seen, state) {
  const { paid, pending, confirmations, exact, waiting } = seen;
  const block = paid && { blockHash: paid.hash, blockHeight: String(paid.height), blockTime: String(paid.time) };
  const transfer = paid ?? pending;
  return {
    state,
    canonical: paid !== null,
    recipient,
    reference,
    ...coins(amount),
    confirmations,
    requiredConfirmations: required,
    hardFinality: false,
    settlementModel: "canonical-chain-depth",
    matchCount: Math.min(exact.length + waiting.length, KEPT_EXACT),
    mismatches: mismatchesOf(BigInt(amount), seen),
    ...(transfer && { txid: transfer.txid }),
    ...block,
    ...(sinceHeight !== null && { sinceHeight }),
  };
}

/** The transfers of other amounts, those with the nearest amounts. */
function mismatchesOf(wanted, { others, otherWaiting, moment }) {
  const distance = ({ amount }) => {
    const difference = BigInt(amount) - wanted;
    return difference < 0n ? -difference : difference;
  };
  const nearest = [...others, ...otherWaiting].sort(
    (one, other) => ascending(distance(one), distance(other)) || ascending(one.txid, other.txid),
  );
  return nearest.slice(0, SHOWN).map(({ txid, amount, height }) => {
    const confirmations = height === undefined ? 0 : moment.tip.height - height + 1;
    return { txid, ...coins(amount), confirmations };
  });
}
