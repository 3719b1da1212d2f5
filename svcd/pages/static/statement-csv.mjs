// The history of an address as CSV, with the columns of `svc export` (docs/command-line.md).

import { formatAmount, wireNumber } from "./units.mjs";

/** @typedef {Record<string, unknown> & { type: string }} Entry of a statement (docs/http.md). */

const COLUMNS = "date (UTC),type,amount,fee,change,counterparty,reference,txid,height,confirmations";
/** @type {Record<string, bigint>} */
const SIGNS = { allocation: 1n, received: 1n, reward: 1n, sent: -1n, self: 0n };

/** A cell; what a spreadsheet would take for a formula is text.
 * @type {(value: unknown) => string} */
function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && !/^-?[0-9.]+$/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** @type {(entry: Entry) => string} */
function row(entry) {
  const [amount, fee] = [wireNumber(entry.amount) ?? 0n, wireNumber(entry.fee) ?? 0n];
  const change = (SIGNS[entry.type] ?? 0n) * amount - fee;
  const date = new Date(Number(entry.time)).toISOString().replace("T", " ").slice(0, 19);
  const values = [date, entry.type, formatAmount(amount), formatAmount(fee), formatAmount(change)];
  return [...values, entry.counterparty, entry.reference, entry.txid, entry.height, entry.confirmations].map(cell).join();
}

/** The entries of a statement (docs/http.md) as CSV with a header (RFC 4180).
 * @type {(entries: Entry[]) => string} */
export const statementCsv = (entries) => `${[COLUMNS, ...entries.map(row)].join("\r\n")}\r\n`;
