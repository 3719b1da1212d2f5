// The numbers of the wire, and amounts in base units and in coins (docs/protocol.md 2). Never a Number.

/** Base units of one coin. */
export const COIN = 100_000_000n;
/** The greatest number on the wire, 2^53 − 1. */
export const GREATEST = 9_007_199_254_740_991n;

/** The number in a decimal string of the wire, 0 to 2^53 − 1, or null if it is none.
 * @type {(value: unknown) => bigint | null} */
export function wireNumber(value) {
  if (typeof value !== "string" || !/^(?:0|[1-9][0-9]{0,15})$/.test(value)) return null;
  const number = BigInt(value);
  return number <= GREATEST ? number : null;
}

/** Base units of a decimal number of coins such as "25" or "0.5", with at most 8 decimal places; null if it is none.
 *
 * The caller checks that they are an amount, 1 to 2^53 − 1.
 * @type {(coins: unknown) => bigint | null} */
export function unitsOf(coins) {
  if (typeof coins !== "string" || coins.length > 32) return null;
  const match = /^(0|[1-9][0-9]*)(?:\.([0-9]{1,8}))?$/.exec(coins);
  return match && BigInt(match[1]) * COIN + BigInt((match[2] ?? "").padEnd(8, "0"));
}

/** The shortest decimal number of coins of base units: "25", "0.5", "-1.25".
 * @type {(units: bigint | string) => string} */
export function formatAmount(units) {
  const given = BigInt(units);
  const size = given < 0n ? -given : given;
  const rest = (size % COIN).toString().padStart(8, "0").replace(/0+$/, "");
  return `${given < 0n ? "-" : ""}${size / COIN}${rest && "."}${rest}`;
}
