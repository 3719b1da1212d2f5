// Amounts as people type them (docs/payments.md "Values").

import { coins, UNIT } from "./digits.mjs";
import { must } from "./problem.mjs";
import { message } from "./texts.mjs";
import { GREATEST, unitsOf } from "./units.mjs";

const UNIT_BEHIND = new RegExp(`[ \u00a0]?${UNIT}$`);

/** Base units of a decimal amount of coins such as "25" or "0.5": 1 to 2^53 − 1. Throws `amount`.
 * @type {(text: string) => bigint} */
export function parseAmount(text) {
  const units = unitsOf(text);
  must(units !== null, "amount", message("wallet-script.amount-form"));
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
  const number = text.replace(UNIT_BEHIND, "").replaceAll("\u202f", "");
  return parseAmount(/^(?:0,[0-9]+|[0-9]+,(?![0-9]{3}$)[0-9]+)$/.test(number) ? number.replace(",", ".") : number);
}
