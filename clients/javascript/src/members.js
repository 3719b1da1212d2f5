// Checks the members of a node's answers; unknown ones are left alone.

import { InvalidAnswer } from "./errors.js";
import { wireNumber } from "./light/units.mjs";

const MAX_SHOWN = 1000;

/** Text of a node for a sentence: at most 1,000 characters, and none that a terminal or a page would act on. */
export const shown = (text) =>
  text
    .slice(0, MAX_SHOWN)
    .replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

const FORMS = {
  text: ["a string", (value) => typeof value === "string"],
  flag: ["true or false", (value) => typeof value === "boolean"],
  count: ["a whole number", (value) => Number.isSafeInteger(value) && value >= 0],
  number: ["a decimal string of at most 2^53 - 1", (value) => wireNumber(value) !== null],
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

/** The payment of an answer or an event. */
export function payment(value, where = "payment") {
  const found = members(value, where, {
    state: "text",
    reference: "text",
    recipient: "text",
    amount: "number",
    confirmations: "count",
    requiredConfirmations: "count",
    canonical: "flag",
    matchCount: "count",
    mismatches: "objects",
    tip: "object?",
    node: "object?",
    txid: "text?",
    blockHash: "text?",
    blockHeight: "number?",
    blockTime: "number?",
    work: "object?",
  });
  if (found.work) members(found.work, "work", WORK);
  const state = shown(found.state.slice(0, 32));
  if (rank(found.state) < 0) throw new InvalidAnswer(`'${state}' is not a state of a payment`);
  if (found.node) members(found.node, "node", { synced: "flag" });
  return found;
}

/** Whether the shop may deliver now: confirmed, on the chain of the network. It may still be undone later. */
export const isSettled = (found) => found.state === "confirmed" && found.node?.synced === true;
