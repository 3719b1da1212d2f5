// JSON in which each value has exactly one form (docs/protocol.md 2), as proofs have it.

import { InvalidProof } from "./errors.mjs";
import { formFault } from "./json-form.mjs";
import { GREATEST, wireNumber } from "./units.mjs";

/** @typedef {Record<string, unknown>} Fields of an object, which may hold anything. */

/** Throw InvalidProof unless `truth` holds.
 * @type {(truth: unknown, sentence: string) => asserts truth} */
export function must(truth, sentence) {
  if (!truth) throw new InvalidProof(sentence);
}

/** The value of a strict JSON text, called `what`, of at most so many characters; throws InvalidProof.
 * @type {(text: string, most: number, what?: string) => unknown} */
export function strictJson(text, most, what = "the answer") {
  must(text.length <= most, `${what} has ${text.length} characters, more than ${most}`);
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidProof(`${what} is not JSON`);
  }
  const fault = formFault(text, true);
  must(fault === null, String(fault));
  return value;
}

/** The members of an object that has exactly these; throws InvalidProof.
 * @type {(value: unknown, names: readonly string[], what: string) => Fields} */
export function exactFields(value, names, what) {
  must(typeof value === "object" && value !== null && !Array.isArray(value), `${what} must be an object`);
  const unknown = Object.keys(value).find((name) => !names.includes(name));
  must(unknown === undefined, `${what} has the unknown member ${JSON.stringify(unknown?.slice(0, 32))}`);
  const missing = names.find((name) => !Object.hasOwn(value, name));
  must(missing === undefined, `${what} lacks the member ${missing}`);
  return /** @type {Fields} */ (value);
}

/** The elements of an array; throws InvalidProof.
 * @type {(value: unknown, what: string) => unknown[]} */
export function elements(value, what) {
  must(Array.isArray(value), `${what} must be an array`);
  return value;
}

/** The number in a decimal string of at most 2^53 − 1; throws InvalidProof.
 * @type {(value: unknown, what: string) => bigint} */
export function decimal(value, what) {
  const number = wireNumber(value);
  must(number !== null, `${what} must be a decimal string from 0 to ${GREATEST}`);
  return number;
}

/** An integer of JSON from 0 on; throws InvalidProof.
 * @type {(value: unknown, what: string) => number} */
export function whole(value, what) {
  must(typeof value === "number" && Number.isSafeInteger(value) && value >= 0, `${what} must be a whole number`);
  return value;
}

/** The lower-case hex of so many bytes; throws InvalidProof.
 * @type {(value: unknown, size: number, what: string) => string} */
export function hex(value, size, what) {
  const right = typeof value === "string" && value.length === 2 * size && /^[0-9a-f]*$/.test(value);
  must(right, `${what} must be ${2 * size} lower-case hex characters`);
  return value;
}
