// Amounts: BigInt base units inside, decimal coins for people (docs/payments.md "Values"). Never a Number.

import { grouped } from "./digits.mjs";
import { COIN, GREATEST } from "./networks.mjs";
import { must } from "./problem.mjs";
import { message } from "./texts.mjs";

/** Base units of a decimal amount of coins such as "25" or "0.5": 1 to 2^53 − 1. Throws `amount`.
 * @type {(text: string) => bigint} */
export function parseAmount(text) {
  const match = text.length <= 32 ? /^(0|[1-9][0-9]*)(?:\.([0-9]{1,8}))?$/.exec(text) : null;
  must(match, "amount", message("wallet-script.amount-form"));
  const units = BigInt(match[1]) * COIN + BigInt((match[2] ?? "").padEnd(8, "0"));
  must(units >= 1n, "amount", message("wallet-script.amount-positive"));
  must(units <= GREATEST, "amount", message("wallet-script.amount-most", { most: coins(GREATEST) }));
  return units;
}

/** Base units of an amount that a person has typed, or pasted as a page shows it: "1 250.5 SVC". Throws `amount`.
 *
 * A comma is the decimal point of many languages, and the only one on their phones' keypads. It is taken for one unless
 * it may separate thousands: where exactly three digits follow it, and what precedes it is not a lone 0.
 * @type {(text: string) => bigint} */
export function typedAmount(text) {
  const number = text.replace(/[ \u00a0]?SVC$/, "").replaceAll("\u202f", "");
  return parseAmount(/^(?:0,[0-9]+|[0-9]+,(?![0-9]{3}$)[0-9]+)$/.test(number) ? number.replace(",", ".") : number);
}

/** The shortest decimal of base units in coins: "25", "0.5", "-1.25".
 * @type {(units: bigint) => string} */
export function formatAmount(units) {
  const sign = units < 0n ? "-" : "";
  const size = units < 0n ? -units : units;
  const rest = (size % COIN).toString().padStart(8, "0").replace(/0+$/, "");
  return `${sign}${size / COIN}${rest && "."}${rest}`;
}

/** Base units for a sentence: "1 250.5 SVC", which does not break across lines.
 * @type {(units: bigint) => string} */
export const coins = (units) => `${grouped(formatAmount(units))}\u00a0SVC`;

/** A sentence of a node with the amounts in coins that it gives in base units.
 * @type {(sentence: string) => string} */
export function inCoins(sentence) {
  return sentence.replace(/\b([0-9]{1,17}) base units?\b/g, (_, units) => coins(BigInt(units)));
}

/** The number in a decimal string of the wire, 0 to 2^53 − 1, or null if it is none.
 * @type {(value: unknown) => bigint | null} */
export function wireNumber(value) {
  if (typeof value !== "string" || !/^(0|[1-9][0-9]{0,15})$/.test(value)) return null;
  const number = BigInt(value);
  return number <= GREATEST ? number : null;
}
