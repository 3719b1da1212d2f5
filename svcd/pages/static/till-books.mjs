// The view of the orders of a day, with their sum, and the file of them.

import { coins } from "./digits.mjs";
import { csvOf } from "./statement-csv.mjs";
import { locale, message } from "./texts.mjs";
import { list } from "./till-list.mjs";
import { dayOf, slugOf, standingOf, timeOf } from "./till-orders.mjs";
import { formatAmount } from "./units.mjs";
import { byId, download, element, onClick, tell, write, writeAmount } from "./wallet-dom.mjs";

/** @import { Order } from "./till-orders.mjs" */
/** @import { Settings } from "./till-store.mjs" */
/** @import { Till } from "./till.mjs" */

const days = () => byId("orders-day", HTMLSelectElement);

/** The orders of a day in memory; of those of other devices the ones that have payments, or have had one that counted.
 * @type {(till: Pick<Till, "orders">, day: string) => Order[]} */
export const ordersOf = ({ orders }, day) =>
  [...orders.values()].filter((order) => order.day === day && (order.made !== null || order.reached || order.payments.length > 0));

/** A day as this language and place write it.
 * @type {(day: string) => string} */
function nameOf(day) {
  const [, year, month, date] = (/^(....)(..)(..)$/.exec(day) ?? []).map(Number);
  return new Date(year, month - 1, date).toLocaleDateString(locale(), { dateStyle: "full" });
}

/** @type {(till: Till) => void} */
export function wireBooks(till) {
  days().addEventListener("change", () => till.openDay(days().value).catch((problem) => tell(byId("line"), problem)));
  onClick(byId("orders-export"), () => {
    const day = days().value;
    const { name } = /** @type {Settings} */ (till.settings);
    const orders = ordersOf(till, day).sort((one, other) => timeOf(one) - timeOf(other));
    download(`${slugOf(name)}-${day}.csv`, csvOf(rowsOf(orders, till.height)), "text/csv");
    write(byId("orders-live"), message("wallet-script.file-handed"));
  });
}

/** Show the books of the day that is chosen, if they are open: today's at first.
 * @type {(till: Till) => void} */
export function enterBooks(till) {
  const { settings, height, synced } = till;
  if (document.body.dataset.view !== "orders" || settings === null) return;
  const today = dayOf(Date.now(), settings.turn);
  const known = new Set([today, ...till.days, ...[...till.orders.values()].map(({ day }) => day)]);
  const choice = [...known].sort().reverse();
  const chosen = choice.includes(till.day) ? till.day : today;
  if (days().dataset.shown !== choice.join()) {
    days().dataset.shown = choice.join();
    days().replaceChildren(...choice.map((day) => element("option", { value: day, textContent: nameOf(day) })));
  }
  days().value = chosen;
  const orders = ordersOf(till, chosen);
  const { count, sum, seen, back } = totalsOf(orders, height);
  writeAmount(byId("orders-sum"), sum);
  write(byId("orders-count"), message("till-script.orders", { count }));
  byId("orders-seen").hidden = seen === 0n;
  if (seen > 0n) write(byId("orders-seen"), message("till-script.sum-seen", { amount: coins(seen) }));
  byId("orders-back").hidden = back === 0n;
  if (back > 0n) write(byId("orders-back"), message("till-script.sum-back", { amount: coins(back) }));
  byId("orders-incomplete").hidden = till.complete;
  byId("orders-empty").hidden = orders.length > 0;
  list(byId("orders-list"), orders, height, synced);
}

/** The books of some orders: how many are paid and their sum, how much of it is in no block yet, and what was refunded.
 * @type {(orders: Order[], height: bigint) => { count: number, sum: bigint, seen: bigint, back: bigint, urgent: number }} */
export function totalsOf(orders, height) {
  const totals = { count: 0, sum: 0n, seen: 0n, back: 0n, urgent: 0 };
  for (const order of orders) {
    const { state, confirmations, back, urgent } = standingOf(order, height);
    totals.back += back;
    totals.urgent += Number(urgent);
    if (state !== "paid") continue;
    totals.count += 1;
    totals.sum += order.amount ?? 0n;
    if (confirmations === 0) totals.seen += order.amount ?? 0n;
  }
  return totals;
}

const COLUMNS = "date (UTC),day,reference,items,amount,state,received,refunded,confirmations,txids".split(",");

/** The cells of the books of some orders, with a header.
 * @type {(orders: Order[], height: bigint) => (string | number)[][]} */
export const rowsOf = (orders, height) => [
  COLUMNS,
  ...orders.map((order) => {
    const { state, confirmations, received, back, twice } = standingOf(order, height);
    return [
      new Date(timeOf(order)).toISOString().replace("T", " ").slice(0, 19),
      order.day,
      order.amount === null ? "" : order.reference,
      order.lines.map(({ name, count }) => `${count} ${name}`).join("; "),
      order.amount === null ? "" : formatAmount(order.amount),
      twice ? "twice" : state,
      formatAmount(received),
      formatAmount(back),
      confirmations,
      order.payments.map(({ txid }) => txid).join(" "),
    ];
  }),
];
