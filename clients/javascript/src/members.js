// Checks the members of a node's answers; unknown ones are left alone.

import { InvalidAnswer } from "./errors.js";
import { keyOf } from "./light/key-hash.mjs";
import { REFERENCE } from "./light/transaction.mjs";
import { formatAmount, wireNumber } from "./light/units.mjs";
import { visible } from "./light/visible.mjs";

const MAX_SHOWN = 1000;

/** Text of a node for a sentence: at most 1,000 characters, and none that a terminal or a page would act on. */
export const shown = (text) => visible(text.slice(0, MAX_SHOWN));

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

const FORMS = {
  text: ["a string", (value) => typeof value === "string"],
  flag: ["true or false", (value) => typeof value === "boolean"],
  count: ["a whole number", (value) => Number.isSafeInteger(value) && value >= 0],
  number: ["a decimal string of at most 2^53 - 1", (value) => wireNumber(value) !== null],
  hash: ["64 lower-case hex digits", (value) => typeof value === "string" && /^[0-9a-f]{64}$/.test(value)],
  object: ["an object", isObject],
  objects: ["an array of objects", (value) => Array.isArray(value) && value.every(isObject)],
  texts: ["an array of strings", (value) => Array.isArray(value) && value.every((each) => typeof each === "string")],
};

/** `value` if it is an object whose members have these forms; a form with `?` allows null and absence. */
export function members(value, where, forms) {
  if (!isObject(value)) throw new InvalidAnswer(`${where} must be an object`);
  for (const [name, given] of Object.entries(forms)) {
    const [form, fits] = FORMS[given.replace("?", "")];
    if (given.endsWith("?") && (value[name] ?? null) === null) continue;
    if (!fits(value[name])) throw new InvalidAnswer(`${name} in ${where} must be ${form}`);
  }
  return value;
}

const STATES = ["unpaid", "pending", "confirming", "confirmed"];

/** How far a payment is: 0 for unpaid up to 3 for confirmed. */
export const rank = (state) => STATES.indexOf(state);

const WORK = { hashesToUndo: "number", coreHoursToUndo: "text", workConfirmations: "text" };
const MISMATCH = { txid: "hash", amount: "number", amountSvc: "text" };

/** Throws InvalidAnswer unless the coins that a record names are those of its base units. */
function checkCoins({ amount, amountSvc }, where) {
  const coins = formatAmount(amount);
  if (amountSvc !== coins) throw new InvalidAnswer(`amountSvc in ${where} must be ${coins}, the coins of its amount`);
}

/** Throws InvalidAnswer unless a sender is an address of the network on which the recipient is. */
function checkSender(sender, recipient, where) {
  const prefix = recipient.slice(0, recipient.lastIndexOf("1"));
  const right = keyOf(sender, prefix) !== null;
  if (!right) throw new InvalidAnswer(`sender in ${where} must be an address that begins with ${shown(prefix)}1q`);
}

/** A transfer that does not pay its order, from an event about a payment to `recipient`. */
export function mismatchOf(value, recipient) {
  const found = members(value, "mismatch", { ...MISMATCH, sender: "text", kind: "text", more: "flag?" });
  checkCoins(found, "mismatch");
  checkSender(found.sender, recipient, "mismatch");
  checkWord(found.kind, ["too-little", "too-much", "duplicate", "late"], "kind of a mismatch");
  return found;
}

/** Throws InvalidAnswer unless `word` is one of the words of an answer. */
function checkWord(word, words, what) {
  if (!words.includes(word)) throw new InvalidAnswer(`'${shown(word.slice(0, 32))}' is not a ${what}`);
}

const TRANSFER = {
  txid: "hash",
  sender: "text",
  reference: "text?",
  amount: "number",
  amountSvc: "text",
  canonical: "flag",
  confirmations: "count",
  blockHash: "hash?",
  blockHeight: "number?",
  blockTime: "number?",
  mismatch: "text?",
};

/** A transfer to `recipient`, with what it is for an order of `amount` base units, or of none. */
export function received(value, recipient, amount) {
  const found = members(value, "a transfer", TRANSFER);
  checkCoins(found, "a transfer");
  checkSender(found.sender, recipient, "a transfer");
  const mismatch = found.mismatch ?? null;
  if (mismatch !== null) checkWord(mismatch, ["too-little", "too-much", "duplicate"], "mismatch of a transfer");
  if (amount === undefined) return found;
  const difference = BigInt(found.amount) - BigInt(amount);
  const right = difference < 0n ? ["too-little"] : difference > 0n ? ["too-much"] : [null, "duplicate"];
  const sentence = `a transfer of ${found.amount} base units is listed as ${mismatch} for an order of ${amount}`;
  if (!right.includes(mismatch)) throw new InvalidAnswer(sentence);
  return found;
}

const TOLD = { ...MISMATCH, sender: "text", reference: "text?" };
const ENTRY = { ...TOLD, type: "text", height: "number", hash: "hash", time: "number", position: "count" };
const WAITING = { ...TOLD, arrivalTime: "number" };
const LONGEST_CURSOR = 4096;
/** Waiting transfers in a page of a feed, at most. */
export const LISTED = 1000;
/** A position behind every transfer of a block. */
export const BEHIND_ALL = 65_536;

/** A page of the feed of `recipient`, of at most `limit` entries. */
export function feedPage(value, recipient, limit) {
  const forms = { entries: "objects", pending: "objects", next: "text", tip: "object", node: "object" };
  const found = members(value, "feed", forms);
  const { entries, pending, next, tip } = found;
  members(tip, "tip", { height: "number", hash: "hash" });
  members(found.node, "node", { height: "number", hash: "hash", synced: "flag" });
  const short = entries.length <= limit && pending.length <= LISTED && next.length <= LONGEST_CURSOR;
  if (!short || next === "") throw new InvalidAnswer("the answer of the feed is longer than a node's");
  const isRewound = entries[0]?.type === "rewind";
  const first = isRewound ? members(entries[0], "a rewind", { height: "number", hash: "hash" }) : null;
  const payments = first === null ? entries : entries.slice(1);
  for (const each of payments) {
    paidIn(each, recipient, ENTRY);
    const sentence = "an entry of the feed must be a payment, or a rewind at the beginning";
    if (each.type !== "payment") throw new InvalidAnswer(sentence);
  }
  for (const each of pending) paidIn(each, recipient, WAITING);
  for (const listed of [payments, pending])
    if (new Set(listed.map(({ txid }) => txid)).size < listed.length)
      throw new InvalidAnswer("the feed has a transfer twice");
  checkChain(first === null ? payments : [{ ...first, position: BEHIND_ALL, time: "0" }, ...payments], tip);
  return found;
}

/** Throws InvalidAnswer unless a record of a feed is a transfer to the recipient. */
function paidIn(value, recipient, forms) {
  const { reference = null, ...found } = members(value, "a transfer", forms);
  checkCoins(found, "a transfer");
  checkSender(found.sender, recipient, "a transfer");
  const pays = found.amount !== "0" && (found.recipient ?? recipient) === recipient;
  if (!pays) throw new InvalidAnswer("the feed has a transfer that pays the recipient nothing");
  const possible = reference === null || REFERENCE.test(reference);
  if (!possible) throw new InvalidAnswer("the feed has a transfer with an impossible reference");
}

/** Throws InvalidAnswer unless the entries follow each other on one chain that ends at `tip`. */
function checkChain(entries, tip) {
  const order = (one, other) => Number(one.height) - Number(other.height) || one.position - other.position;
  for (const [place, each] of entries.entries()) {
    const before = entries[place - 1];
    const within = each.type === "rewind" || each.position < BEHIND_ALL;
    const follows = within && (before === undefined || order(before, each) < 0);
    if (!follows) throw new InvalidAnswer("the entries of the feed are not in the order of the chain");
    const same = before?.height === each.height;
    const later = Number(each.time) > Number(before?.time);
    const one = before === undefined || ((before.hash === each.hash) === same && later !== same);
    if (!one) throw new InvalidAnswer("the entries of the feed are not of one chain");
    const isTip = each.height === tip.height;
    const below = Number(each.height) <= Number(tip.height) && isTip === (each.hash === tip.hash);
    if (!below) throw new InvalidAnswer("an entry of the feed is not below its tip");
  }
}

/** The payment of an answer or an event.
 *
 * With `earlier`, its state may be older than the rest, as in an event that does not change the state.
 */
export function payment(value, where = "payment", { earlier = false } = {}) {
  const found = members(value, where, {
    state: "text",
    reference: "text",
    recipient: "text",
    amount: "number",
    amountSvc: "text",
    confirmations: "count",
    requiredConfirmations: "count",
    canonical: "flag",
    matchCount: "count",
    mismatches: "objects",
    tip: "object?",
    node: "object?",
    txid: "hash?",
    blockHash: "hash?",
    blockHeight: "number?",
    blockTime: "number?",
    sinceHeight: "number?",
    work: "object?",
  });
  if (found.work) members(found.work, "work", WORK);
  checkWord(found.state, STATES, "state of a payment");
  const { confirmations, requiredConfirmations } = found;
  const deep = found.canonical && confirmations >= requiredConfirmations;
  const shallow = `has ${confirmations} of ${requiredConfirmations} confirmations, and canonical is ${found.canonical}`;
  if (found.state === "confirmed" && !deep && !earlier) throw new InvalidAnswer(`a confirmed payment ${shallow}`);
  checkCoins(found, where);
  for (const each of found.mismatches)
    checkCoins(members(each, "mismatches", { ...MISMATCH, confirmations: "count" }), "mismatches");
  if (found.node) members(found.node, "node", { synced: "flag" });
  return found;
}

/** Whether the shop may deliver now: confirmed, on the chain of the network. It may still be undone later. */
export const isSettled = (found) => found.state === "confirmed" && found.node?.synced === true;
