// Lists of transfers, from where the wallet stands.

import { byId, element, moment, say, writeAmount } from "./wallet-dom.mjs";
import { hasFallen } from "./paying.mjs";
import { message } from "./texts.mjs";
import { kindOf } from "./transfer-kind.mjs";
import { wireNumber } from "./units.mjs";
import { visible } from "./visible.mjs";

/** @import { TransferRecord } from "./node.mjs" */
/** @import { Payment, PaymentState } from "./paying.mjs" */
/**
 * @typedef {Omit<TransferRecord, "blockTime"> & { blockTime?: string | number, signedAt?: number, state?: PaymentState,
 *   label?: string | null, problem?: { code: string } | null, waits?: boolean, fallen?: boolean }} Row
 */

/** The transfer of a record of the node as a line of a list, from where `own` stands.
 * @type {(record: Row, own: string) => HTMLElement} */
function line(record, own) {
  const out = record.senderAddress === own;
  const toSelf = out && record.payload?.recipient === own;
  const sign = toSelf || record.state === "refused" ? "" : out ? "−" : "+";
  const amount = element("span", { className: "amount" });
  writeAmount(amount, wireNumber(record.payload?.amount) ?? 0n, sign);
  const kind = kindOf(record.payload, { out, toSelf, waits: record.waits === true });
  const textContent = record.state === "refused" ? message("wallet-script.title-refused") : kind;
  const what = element("span", { className: "what", textContent });
  const other = String(out ? record.payload?.recipient : record.senderAddress);
  const address = element("bdi", { textContent: visible(other) });
  const how = element("span", { className: "how soft small cut" }, howOf(record), " · ", address);
  const name = element("bdi", { className: "label", textContent: visible(record.label ?? "") });
  const unsigned = ` ${message("wallet-script.label-unsigned")}`;
  const reference = record.payload?.paymentReference;
  const referred = reference ? [element("bdi", { className: "how mono soft small", textContent: visible(String(reference)) })] : [];
  const label = record.label ? [element("span", { className: "how soft small cut" }, name, unsigned)] : [];
  const href = `#${record.state ? "payment" : "transfer"}=${record.txid}`;
  return element("li", { className: out ? "out" : "in" }, element("a", { href }, what, amount, how, ...referred, ...label));
}

/** @type {(record: Row) => string | HTMLElement} */
function howOf({ state, problem, blockTime, signedAt, waits, fallen }) {
  if (fallen && state === "refused") return message("wallet-script.line-fallen-refused");
  if (fallen) return message("wallet-script.line-fallen");
  if (state === "refused" && problem?.code === "rejected") return message("wallet-script.line-rejected");
  if (state === "refused") return moment(signedAt ?? 0);
  if (waits || state === "pending") return message("wallet-script.line-pending");
  if (state === "signed") return message("wallet-script.line-signed");
  return moment(Number(wireNumber(blockTime) ?? 0n));
}

/** The payments of this wallet that no block holds, as records of the node with their state: those that wait, and those
 * that were refused.
 * @type {(payments: Payment[]) => { waiting: Row[], refused: Row[] }} */
export function unsettled(payments) {
  const rows = payments
    .filter(({ state }) => state !== "confirmed" && state !== "confirming")
    .map((payment) => ({ ...payment.transfer, ...payment, fallen: hasFallen(payment) }));
  return {
    waiting: rows.filter(({ state }) => state !== "refused"),
    refused: rows.filter(({ state }) => state === "refused"),
  };
}

/** Records of the chain, with what this wallet knows of its own payments.
 * @type {(records: TransferRecord[], payments: Payment[]) => Row[]} */
export function withOwn(records, payments) {
  const own = new Map(payments.map((payment) => [payment.txid, payment]));
  return records.map((record) => {
    const payment = own.get(record.txid);
    return { ...record, state: payment?.state, label: payment?.label };
  });
}

/** What waits in the mempool and was not signed here.
 * @type {(waiting: TransferRecord[], payments: Payment[]) => Row[]} */
export function waitingElsewhere(waiting, payments) {
  const own = new Set(payments.map(({ txid }) => txid));
  return waiting.filter(({ txid }) => !own.has(txid)).map((record) => ({ ...record, waits: true }));
}

/** Show records in a list, unless it shows them already.
 * @type {(list: HTMLElement, records: Row[], own: string) => void} */
export function fill(list, records, own) {
  const shown = JSON.stringify(records.map((each) => [each.txid, each.state, each.waits, each.fallen, each.blockTime]));
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  list.replaceChildren(...records.map((record) => line(record, own)));
}

/** That the node has blocks only from the height `first` on, or "" if it has all.
 * @type {(first: bigint) => string} */
export const beginsAt = (first) => (first === 0n ? "" : message("wallet-script.only-later", { height: first }));

/** Say below a list that has ended where it begins, and that it is empty where it is.
 * @type {(name: string, first: bigint, list: { ended: boolean, empty: boolean }) => void} */
export function sayBeginning(name, first, { ended, empty }) {
  byId(`${name}-empty`).hidden = !empty || first > 0n;
  const none = empty && first > 0n ? `${message("wallet-script.none-here")} ` : "";
  say(byId(`${name}-first`), ended ? none + beginsAt(first) : "");
}
