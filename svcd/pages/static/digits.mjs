// Numbers and amounts as people read them: digits in groups of three, and what the network calls its coins.

import { formatAmount } from "./units.mjs";

const UNGROUPED_DECIMALS = 4;
const NARROW_NO_BREAK_SPACE = "\u202f";

/** @type {(digits: string) => string[]} */
const threes = (digits) => digits.match(/.{1,3}/g) ?? [];

/** The groups of a decimal number's digits, from the point to both sides; up to four decimals stay together.
 * @type {(number: string) => string[]} */
function digitGroups(number) {
  const parts = /^([^0-9]*)([0-9]+)(\.?)([0-9]*)$/.exec(number);
  if (parts === null) throw new RangeError(`not a decimal number: ${number}`);
  const [, sign, integer, point, decimals] = parts;
  const first = integer.length % 3 || 3;
  const groups = [integer.slice(0, first), ...threes(integer.slice(first))];
  const [next = "", ...rest] = decimals.length > UNGROUPED_DECIMALS ? threes(decimals) : [decimals];
  groups[0] = sign + groups[0];
  groups[groups.length - 1] += point + next;
  return [...groups, ...rest];
}

/** A decimal number for a sentence, with narrow spaces between the groups.
 * @type {(number: string | number | bigint) => string} */
export const grouped = (number) => digitGroups(String(number)).join(NARROW_NO_BREAK_SPACE);

/** The nodes that show a number; the spaces are margins, so that a number that is copied remains one.
 * @type {(number: string, page?: Document) => (string | HTMLElement)[]} */
export function digitNodes(number, page = document) {
  const [first, ...rest] = digitGroups(number);
  const spans = rest.map((text) => Object.assign(page.createElement("span"), { className: "group", textContent: text }));
  return [first, ...spans];
}

/** What the network calls its coins, which the page says unless it is SVC. */
export const UNIT = globalThis.document?.documentElement.dataset.unit ?? "SVC";

/** Base units for a sentence: "1 250.5 SVC", which does not break across lines.
 * @type {(units: bigint) => string} */
export const coins = (units) => `${grouped(formatAmount(units))}\u00a0${UNIT}`;

/** A sentence of a node with the amounts in coins that it gives in base units.
 * @type {(sentence: string) => string} */
export function inCoins(sentence) {
  return sentence.replace(/\b([0-9]{1,17}) base units?\b/g, (_, units) => coins(BigInt(units)));
}
