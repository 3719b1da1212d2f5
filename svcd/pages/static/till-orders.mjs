// The orders of a till: their references, what the chain says of them, and the books of a day. Nothing here asks or keeps.

import { isReference } from "./orders.mjs";
import { must } from "./problem.mjs";
import { message } from "./texts.mjs";
import { REFUND } from "./transfer-kind.mjs";
import { formatAmount, GREATEST, unitsOf, wireNumber } from "./units.mjs";

/** @import { Fields, TransferRecord } from "./node.mjs" */
/** @typedef {{ name: string, price: bigint }} Item of the price list, in base units. */
/** @typedef {Item & { count: number }} Line of an order. */
/** @typedef {{ txid: string, other: string | null, amount: bigint, height: bigint | null, time: number }} Payment or refund:
 * `other` is who sent the payment or gets the refund, null while nobody has told; `height` is null in the mempool. */
/**
 * @typedef {object} Order
 * @property {string} reference for a payment under no reference the first half of its txid
 * @property {string} till whose order it is (`tillOf`)
 * @property {string} day YYYYMMDD
 * @property {bigint | null} amount base units; null for a payment under no reference
 * @property {number} rule the confirmations after which goods are handed over; 0: once the payment is seen
 * @property {Line[]} lines empty where another device has made it
 * @property {number | null} made when this device made it, in Unix milliseconds
 * @property {number} known when this device has first known of it
 * @property {number | null} left when it was called off
 * @property {number | null} done when the goods were handed over
 * @property {bigint} settled how much of what arrived and pays nothing was returned otherwise, such as in cash
 * @property {boolean} paidOtherwise whether the buyer paid in another way, once the payment was undone
 * @property {boolean} reached whether it was paid once
 * @property {Payment[]} payments under its reference, of any amount
 * @property {Payment[]} refunds
 */
/** @typedef {"waiting" | "left" | "seen" | "confirming" | "paid" | "late" | "wrong" | "undone" | "unknown"} State */
/** @typedef {{ state: State, confirmations: number, received: bigint, back: bigint, owed: bigint, twice: boolean,
 *   urgent: boolean }} Standing in base units. `owed` is what arrived and pays nothing, without what was refunded; where a
 * payment was undone and the buyer has not paid in another way, what the goods cost. It is `urgent` unless all of that is
 * settled. An order that was paid in another way as well is paid `twice`. */
/** @typedef {{ txid: string, sender: string, recipient: string, amount: bigint, reference: string | null,
 *   height: bigint | null, time: number | null }} Transfer */
/** @typedef {{ transfers: Transfer[], since: bigint, height: bigint, begun: number, whole: boolean }} Listing all transfers
 * of the recipient in the mempool, and in the blocks from `since` to `height`, from the time `begun` on, and perhaps of
 * earlier blocks; if it is not `whole`, blocks were replaced meanwhile, or there were too many, and some are missing. */
/** @typedef {{ first: bigint, height: bigint, missingBelow: bigint | null }} Listed up to which height the payments of a till
 * were listed, the first time and the last time; of those in the blocks below `missingBelow`, some were not. */
/** @typedef {{ since: bigint, below: bigint | null, oldest: bigint }} Ranges what is to be listed: the blocks from `since`
 * on and, unless `below` is null, those from `oldest` on that are below it. */

const MAX_ITEMS = 60;
const MAX_ITEM = 40;
const MAX_SLUG = 18;
const RANDOM = 8;
const ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789";
/** Orders that the counter shows at most. */
const COUNTER = 30;
/** For how many milliseconds after an order was made people wait for its payment. */
const PATIENCE = 3_600_000;
/** Blocks that may be replaced below the newest one of the last list. */
const MARGIN = 100n;
/** A reference of a till: its name, the day, eight random characters, the amount in coins. */
const FORM = /^([a-z0-9-]+)-([0-9]{8})-([a-z2-9]{8})-([0-9.]+)$/;

/** The name of a till as references have it: "Bar 1" is bar-1; "" if it has no letter and no digit of those.
 * @type {(name: string) => string} */
export function slugOf(name) {
  const plain = name.replaceAll("ß", "ss").normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  return plain.replace(/[^a-z0-9]+/g, "-").replace(/^-/, "").slice(0, MAX_SLUG).replace(/-$/, "");
}

/** What tells the orders of a till from those of another: two devices with the same three have the same orders.
 * @type {(genesisHash: string, recipient: string, name: string) => string} */
export const tillOf = (genesisHash, recipient, name) => `${genesisHash} ${recipient} ${slugOf(name)}`;

/** The day in this place, which begins at the hour `turn`: a bar that closes at three counts the night as the day before.
 * @type {(time: number, turn: number) => string} */
export function dayOf(time, turn) {
  const moment = new Date(time);
  moment.setHours(moment.getHours() - turn);
  const [month, date] = [moment.getMonth() + 1, moment.getDate()].map((each) => `${each}`.padStart(2, "0"));
  return `${moment.getFullYear()}${month}${date}`;
}

/** Eight characters from so many random bytes.
 * @type {(bytes: Uint8Array) => string} */
export const charactersOf = (bytes) => [...bytes.slice(0, RANDOM)].map((each) => ALPHABET[each % 32]).join("");

/** The reference of an order, which names till, day and amount, so that another device finds all of them on the chain.
 * @type {(slug: string, day: string, random: string, amount: bigint) => string} */
export const referenceOf = (slug, day, random, amount) => `${slug}-${day}-${random}-${formatAmount(amount)}`;

/** Day and amount in a reference of this till; null for any other.
 * @type {(reference: string, slug: string) => { day: string, amount: bigint } | null} */
export function orderIn(reference, slug) {
  const [, named, day, , coins] = FORM.exec(reference) ?? [];
  const amount = named === slug && isReference(reference) ? unitsOf(coins) : null;
  if (amount === null || amount < 1n || amount > GREATEST || formatAmount(amount) !== coins) return null;
  return { day, amount };
}

/** The items of a price list, one on a line with its price behind it: "Tea 2.5". Throws `prices`.
 * @type {(text: string, priceOf: (text: string) => bigint) => Item[]} */
export function pricesIn(text, priceOf) {
  /** @type {Item[]} */
  const items = [];
  text.split("\n").forEach((line, at) => {
    if (line.trim() === "") return;
    const [, name, written] = /^\s*(.*\S)\s+(\S+)\s*$/.exec(line) ?? [];
    let price = null;
    try {
      price = name === undefined ? null : priceOf(written);
    } catch {
      // Said below, with the number of the line.
    }
    must(price !== null, "prices", message("till-script.price-line", { line: at + 1 }));
    must([...name].length <= MAX_ITEM, "prices", message("till-script.price-name", { line: at + 1, most: MAX_ITEM }));
    items.push({ name, price });
  });
  must(items.length <= MAX_ITEMS, "prices", message("till-script.prices-most", { most: MAX_ITEMS }));
  return items;
}

/** What all lines cost together.
 * @type {(lines: Line[]) => bigint} */
export const sumOf = (lines) => lines.reduce((sum, { price, count }) => sum + price * BigInt(count), 0n);

/** An order about which nothing is known but its reference.
 * @type {(reference: string, till: string, day: string, amount: bigint | null, rule: number, known: number) => Order} */
const blank = (reference, till, day, amount, rule, known) => {
  const untouched = { lines: [], made: null, left: null, done: null, settled: 0n, paidOtherwise: false, reached: false };
  return { reference, till, day, amount, rule, known, ...untouched, payments: [], refunds: [] };
};

/** A new order of this device.
 * @type {(reference: string, till: string, rule: number, lines: Line[], now: number) => Order} */
export function newOrder(reference, till, rule, lines, now) {
  const found = orderIn(reference, till.split(" ")[2]);
  if (found === null) throw new RangeError(reference);
  return { ...blank(reference, till, found.day, found.amount, rule, now), lines, made: now };
}

/** The payment URI of an order; the wallet of the buyer shows the label.
 * @type {(order: Order, recipient: string, label: string) => string} */
export function uriOf({ reference, amount, rule }, recipient, label) {
  const shown = label === "" ? "" : `&label=${encodeURIComponent(label)}`;
  return `svc:${recipient}?amount=${formatAmount(amount ?? 0n)}&ref=${reference}&confirmations=${Math.max(rule, 1)}${shown}`;
}

/** The payment URI by which the wallet of the shop refunds a payment; null while nobody has told who sent that.
 * @type {(order: Order, payment: Payment, label: string) => string | null} */
export function refundOf({ reference }, { other, amount }, label) {
  if (other === null) return null;
  return `svc:${other}?amount=${formatAmount(amount)}&ref=${REFUND}${reference}&confirmations=1&label=${encodeURIComponent(label)}`;
}

/** @type {(payment: Payment, height: bigint) => number} */
const depthOf = ({ height: at }, height) => (at === null || at > height ? 0 : Number(height - at) + 1);

/** @type {(payments: Payment[]) => bigint} */
const total = (payments) => payments.reduce((sum, { amount }) => sum + amount, 0n);

/** How an order stands when the newest block has this height.
 * @type {(order: Order, height: bigint) => Standing} */
export function standingOf(order, height) {
  const { amount, rule, payments, refunds, left, done, settled, paidOtherwise, reached } = order;
  const matching = payments.filter((each) => each.amount === amount);
  const confirmations = Math.max(0, ...matching.map((each) => depthOf(each, height)));
  const [received, back] = [total(payments), total(refunds)];
  const isLate = left !== null && done === null;
  /** @type {() => State} */
  const judged = () => {
    if (amount === null) return "unknown";
    if (matching.length > 0) {
      if (confirmations >= rule) return isLate ? "late" : "paid";
      return confirmations > 0 ? "confirming" : "seen";
    }
    if (reached) return "undone";
    if (payments.length > 0) return "wrong";
    return left === null ? "waiting" : "left";
  };
  const state = judged();
  const isPaid = matching.length > 0 && !isLate;
  const twice = matching.length > 1 || (isPaid && paidOtherwise);
  const standing = { state, confirmations, received, back, twice };
  if (state === "undone" && !paidOtherwise) return { ...standing, owed: amount ?? 0n, urgent: true };
  const surplus = received - (isPaid && !paidOtherwise ? (amount ?? 0n) : 0n) - back;
  const owed = surplus > 0n ? surplus : 0n;
  return { ...standing, owed, urgent: owed > settled };
}

/** Whether the payment of an order of this device may still be waited for.
 * @type {(order: Order, height: bigint, now: number) => boolean} */
export const isOpen = (order, height, now) =>
  order.made !== null && now - order.made < PATIENCE && ["waiting", "seen", "confirming", "wrong"].includes(standingOf(order, height).state);

/** The orders for which people wait at the counter or at which somebody must look, those of this device and then the newest
 * first, and how many more there are. Anybody can send coins without an order: where this device has not made it and no
 * payment has its amount, it is in the books alone.
 * @type {(orders: Order[], height: bigint) => { shown: Order[], more: number }} */
export function atCounter(orders, height) {
  const open = orders.filter((order) => {
    const { made, done, left, amount, payments, reached } = order;
    const { state, urgent } = standingOf(order, height);
    if (made === null) return urgent && (reached || payments.some((each) => each.amount === amount));
    return urgent || (["waiting", "seen", "confirming", "paid"].includes(state) && done === null && left === null);
  });
  const own = open.filter(({ made }) => made !== null);
  const others = open.filter(({ made }) => made === null);
  const sorted = [own, others].flatMap((each) => each.sort((one, other) => timeOf(other) - timeOf(one)));
  return { shown: sorted.slice(0, COUNTER), more: Math.max(0, sorted.length - COUNTER) };
}

/** What is noted of an order once a person has settled it in another way: the buyer has paid for the goods whose payment was
 * undone, or got back what pays nothing.
 * @type {(order: Order, height: bigint) => Partial<Order>} */
export function settlement(order, height) {
  const { state, owed } = standingOf(order, height);
  return state === "undone" && !order.paidOtherwise ? { paidOtherwise: true } : { settled: owed };
}

/** An order that notes whether it was ever paid.
 * @type {(order: Order, height: bigint) => Order} */
const noted = (order, height) => (standingOf(order, height).state === "paid" ? { ...order, reached: true } : order);

/** Two records of an order: what people did is in either, and what the chain says in the newer one.
 * @type {(kept: Order | undefined, newer: Order) => Order} */
export function joined(kept, newer) {
  if (kept === undefined) return newer;
  const lines = kept.lines.length > 0 ? kept.lines : newer.lines;
  const [made, left, done] = [kept.made ?? newer.made, kept.left ?? newer.left, kept.done ?? newer.done];
  const [rule, { known }] = [kept.made === null ? newer.rule : kept.rule, kept];
  const settled = kept.settled > newer.settled ? kept.settled : newer.settled;
  const paidOtherwise = kept.paidOtherwise || newer.paidOtherwise;
  return { ...newer, lines, made, known, left, done, rule, settled, paidOtherwise, reached: kept.reached || newer.reached };
}

/** The order as a node's verification tells it (docs/payments.md); null if that contradicts itself.
 * @type {(order: Order, told: Fields, now: number) => { order: Order, height: bigint, synced: boolean, more: boolean } | null}
 * `more` says that there are payments which the verification does not list. */
export function verified(order, told, now) {
  const { state, txid, confirmations, matchCount, mismatches, node, tip, requiredConfirmations: needed } = told;
  const height = wireNumber(/** @type {Fields | null} */ (tip)?.height);
  const synced = /** @type {Fields | null} */ (node)?.synced;
  if (height === null || typeof synced !== "boolean" || order.amount === null || !Array.isArray(mismatches)) return null;
  if (!isCount(confirmations) || !isCount(matchCount) || (state === "unpaid") !== (matchCount === 0)) return null;
  /** @type {(txid: unknown, amount: bigint | null, depth: unknown, time: number) => Payment | null} */
  const payment = (txid, amount, depth, time) => {
    if (!isName(txid) || amount === null || !isCount(depth) || BigInt(depth) > height + 1n) return null;
    const known = order.payments.find((each) => each.txid === txid);
    return { txid, other: known?.other ?? null, amount, height: depth > 0 ? height - BigInt(depth) + 1n : null, time };
  };
  const wrong = mismatches.map((each) => payment(each?.txid, wireNumber(each?.amount), each?.confirmations, now));
  const listed = [...wrong];
  if (state !== "unpaid") {
    const time = state === "pending" ? BigInt(now) : wireNumber(told.blockTime);
    const fits = (state === "confirmed") === confirmations >= Number(needed) && (state === "pending") === (confirmations === 0);
    if (!fits || time === null) return null;
    listed.unshift(payment(txid, order.amount, confirmations, Number(time)));
    const others = order.payments.filter((each) => each.amount === order.amount && each.txid !== txid);
    listed.push(...others.slice(0, matchCount - 1));
  }
  const payments = listed.filter((each) => each !== null);
  if (payments.length < listed.length) return null;
  const matching = payments.filter(({ amount }) => amount === order.amount).length;
  const more = matching < matchCount || payments.some(({ other }) => other === null);
  return { order: noted({ ...order, payments }, height), height, synced, more };
}

/** Addresses and txids, which become parts of links.
 * @type {(value: unknown) => value is string} */
const isName = (value) => typeof value === "string" && /^[0-9a-z]{1,90}$/.test(value);

/** @type {(value: unknown) => value is number} */
const isCount = (value) => typeof value === "number" && Number.isSafeInteger(value) && value >= 0;

/** A transfer in a list of a node (docs/http.md); null if it makes no sense.
 * @type {(record: TransferRecord & { blockHeight?: unknown }) => Transfer | null} */
export function transferIn({ txid, senderAddress: sender, payload, blockHeight, blockTime }) {
  const amount = wireNumber(payload?.amount);
  const { recipient, paymentReference: reference = null } = payload ?? {};
  const [height, time] = blockHeight === undefined ? [null, null] : [wireNumber(blockHeight), wireNumber(blockTime)];
  if (![txid, sender, recipient].every(isName) || amount === null || (blockHeight !== undefined && (height === null || time === null))) return null;
  if (reference !== null && typeof reference !== "string") return null;
  return { txid, sender, recipient: String(recipient), amount, reference, height, time: time === null ? null : Number(time) };
}

/** The heights whose payments are to be listed, where a till looks back so many blocks and `first` is the first block that
 * the node has.
 * @type {(before: Listed | null, height: bigint, first: bigint, blocks: bigint) => Ranges} */
export function rangesOf(before, height, first, blocks) {
  /** @type {(at: bigint) => bigint} */
  const there = (at) => (at > first ? at : first);
  const oldest = there(height - blocks);
  if (before === null) return { since: oldest, below: null, oldest };
  const since = there((before.height < height ? before.height : height) - MARGIN);
  const gap = before.missingBelow ?? 0n;
  return { since, below: gap > oldest && since > oldest ? (gap < since ? gap : since) : null, oldest };
}

/** Below which height payments are missing once all from `since` on and, if those were asked for, all from `older` to
 * `below` are listed; null if none is missing.
 * @type {(ranges: Ranges, since: bigint, older: bigint) => bigint | null} */
export function missingBelow(ranges, since, older) {
  if (since > ranges.since) return since;
  return ranges.below !== null && older > ranges.oldest ? older : null;
}

/** The references of the orders that transfers pay, or of which they are refunds.
 * @type {(transfers: Transfer[]) => string[]} */
export const ordersNamed = (transfers) => [
  ...new Set(transfers.map(({ txid, reference }) => (reference === null ? strayOf(txid) : reference.replace(/^refund:/, "")))),
];

/** What stands for the reference of a payment that has none.
 * @type {(txid: string) => string} */
const strayOf = (txid) => txid.slice(0, 32);

/** The coins that came without an order before this till was set up are no business of it: up to the height `first`, or as
 * its first list has them.
 * @type {(order: Order, first: bigint, isFirst: boolean) => Order} */
export function asBefore(order, first, isFirst) {
  const isOld = isFirst || order.payments.every(({ height }) => height !== null && height <= first);
  return order.amount === null && isOld ? { ...order, settled: standingOf(order, first).owed } : order;
}

/** The orders that a list of transfers changes, or makes known; `rule` is that of orders which another device has made.
 * @param {Order[]} orders
 * @param {Listing} listing
 * @param {{ till: string, rule: number, turn: number, now: number }} own */
export function reconciled(orders, { transfers, since, height, begun, whole }, { till, rule, turn, now }) {
  const [, recipient, slug] = till.split(" ");
  /** @type {Map<string, Order>} */
  const found = new Map();
  /** What the list would not have: it is older, or was seen after the list was begun.
   * @type {(payments: Payment[]) => Payment[]} */
  const unlisted = (payments) =>
    payments.filter(({ height: at, time }) => !whole || (at === null ? time >= begun : at < since || at > height));
  const before = new Map(orders.map((order) => [order.reference, order]));
  for (const order of orders)
    found.set(order.reference, { ...order, payments: unlisted(order.payments), refunds: unlisted(order.refunds) });
  /** The payments with one more; what is in a block by now was in the mempool when that was listed.
   * @type {(list: Payment[], transfer: Transfer, other: string) => Payment[]} */
  const withIt = (list, { txid, amount, height, time }, other) => {
    const known = list.find((each) => each.txid === txid);
    const newer = { txid, other, amount, height, time: time ?? now };
    const payment = known && height === null ? { ...known, other } : newer;
    return [...list.filter((each) => each !== known), payment];
  };
  // Those on the chain last: a transfer may have got into a block while the lists were read.
  const inOrder = [...transfers].sort((one, other) => Number(one.height !== null) - Number(other.height !== null));
  for (const transfer of inOrder) {
    if (transfer.recipient !== recipient) continue;
    const { txid, reference, time } = transfer;
    const stray = blank(strayOf(txid), till, dayOf(time ?? now, turn), null, rule, now);
    const named = reference === null ? null : orderIn(reference, slug);
    const made = reference !== null && named && blank(reference, till, named.day, named.amount, rule, now);
    const fresh = reference === null ? stray : made;
    if (!fresh) continue;
    const order = found.get(fresh.reference) ?? fresh;
    found.set(order.reference, { ...order, payments: withIt(order.payments, transfer, transfer.sender) });
  }
  for (const transfer of inOrder) {
    const order = transfer.sender === recipient && found.get(transfer.reference?.slice(REFUND.length) ?? "");
    if (!order || !transfer.reference?.startsWith(REFUND)) continue;
    found.set(order.reference, { ...order, refunds: withIt(order.refunds, transfer, transfer.recipient) });
  }
  const all = [...found.values()].map((order) => noted(order, height));
  return all.filter((order) => chainOf(order) !== chainOf(before.get(order.reference)));
}

/** What the chain says of an order, to be compared.
 * @type {(order: Order | undefined) => string} */
export const chainOf = (order) => {
  /** @type {(payments: Payment[]) => string[]} */
  const listed = (payments) => payments.map(({ txid, other, height }) => `${txid} ${other} ${height}`).sort();
  return order === undefined ? "" : JSON.stringify([listed(order.payments), listed(order.refunds), order.reached]);
};

/** When an order was made, or at least paid or known, in Unix milliseconds.
 * @type {(order: Order) => number} */
export const timeOf = ({ made, known, payments }) => made ?? (payments.length > 0 ? Math.min(...payments.map(({ time }) => time)) : known);
