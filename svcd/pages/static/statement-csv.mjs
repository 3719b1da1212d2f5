// The history of an address as CSV, with the columns of `svc export` (docs/command-line.md).

import { formatAmount, wireNumber } from "./units.mjs";

/** @typedef {Record<string, unknown>} Entry of a statement (docs/http.md), which may hold anything. */

/** The last time that JavaScript has, in Unix milliseconds. */
const LAST = 8_640_000_000_000_000n;
const COLUMNS = "date (UTC),type,amount,fee,change,counterparty,reference,txid,height,confirmations".split(",");
/** @type {Record<string, bigint>} */
const SIGNS = { allocation: 1n, received: 1n, reward: 1n, sent: -1n, self: 0n };

/** A cell; what a spreadsheet would take for a formula is text.
 * @type {(value: unknown) => string} */
function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && !/^-?[0-9.]+$/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** @type {(value: unknown) => boolean} */
const isCell = (value) => value === null || typeof value === "string";

/** The cells of an entry, or null if it makes no sense.
 * @type {(entry: Entry | null) => unknown[] | null} */
function row(entry) {
  const { type, counterparty, reference, txid, height, confirmations } = entry ?? {};
  const [amount, fee, time] = [entry?.amount, entry?.fee, entry?.time].map(wireNumber);
  if (typeof type !== "string" || !Object.hasOwn(SIGNS, type)) return null;
  if (amount === null || fee === null || time === null || time > LAST || wireNumber(height) === null) return null;
  if (!Number.isSafeInteger(confirmations) || ![counterparty, reference, txid].every(isCell)) return null;
  const change = SIGNS[type] * amount - fee;
  const date = new Date(Number(time)).toISOString().replace("T", " ").slice(0, 19);
  const values = [date, type, formatAmount(amount), formatAmount(fee), formatAmount(change)];
  return [...values, counterparty, reference, txid, height, confirmations];
}

/** Rows as CSV (RFC 4180), in which no cell is a formula.
 * @type {(rows: unknown[][]) => string} */
export const csvOf = (rows) => rows.map((cells) => `${cells.map(cell).join()}\r\n`).join("");

/** The entries of a statement (docs/http.md) as CSV with a header (RFC 4180); null if one makes no sense.
 * @type {(entries: (Entry | null)[]) => string | null} */
export function statementCsv(entries) {
  const rows = entries.map(row);
  return rows.includes(null) ? null : csvOf([COLUMNS, ...rows.filter((each) => each !== null)]);
}
