// Amounts as people read them, with what the network calls its coins.

import { grouped } from "./digits.mjs";
import { formatAmount } from "./units.mjs";

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
