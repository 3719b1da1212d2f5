// Orders in lists, and what their states are called.

import { localTime, message } from "./texts.mjs";
import { standingOf, timeOf } from "./till-orders.mjs";
import { visible } from "./visible.mjs";
import { element, writeAmount } from "./wallet-dom.mjs";

/** @import { Order } from "./till-orders.mjs" */

/** @type {Record<string, string>} */
const KINDS = { paid: "good", late: "warn", wrong: "bad", undone: "bad", unknown: "warn", seen: "accent", confirming: "accent" };
/** @type {Record<string, string>} */
const NAMES = {
  waiting: "till-script.waiting",
  left: "till-script.left",
  seen: "till-script.seen",
  paid: "till-script.paid",
  late: "till-script.late",
  undone: "till-script.undone",
  unknown: "till-script.unknown",
};

/** What the state of an order is called in few words, and the class of the badge for it. No order is called paid while
 * the node does not know the newest blocks.
 * @type {(order: Order, height: bigint, synced: boolean) => { text: string, kind: string }} */
export function nameOf(order, height, synced) {
  const { state, confirmations, received, twice } = standingOf(order, height);
  const kind = twice ? "warn" : (KINDS[state] ?? "");
  if (state === "wrong") {
    const over = received > (order.amount ?? 0n);
    return { text: message(over ? "till-script.too-much" : "till-script.too-little"), kind };
  }
  if (state === "paid" && twice) return { text: message("till-script.twice"), kind };
  if (state === "confirming" || (state === "paid" && !synced)) {
    const count = Math.max(order.rule, 1);
    return { text: message("till-script.confirming", { done: Math.min(confirmations, count), count }), kind: "accent" };
  }
  return { text: message(NAMES[state]), kind };
}

/** An order in a list, with a link to it.
 * @type {(order: Order, height: bigint, name: { text: string, kind: string }) => HTMLElement} */
function row(order, height, { text, kind }) {
  const amount = element("span", { className: "amount" });
  writeAmount(amount, order.amount ?? standingOf(order, height).received);
  const badge = element("span", { className: `badge ${kind}`, textContent: text });
  const items = order.lines.map(({ name, count }) => `${count} × ${visible(name)}`).join(", ");
  const words = [localTime(timeOf(order)), items].filter((each) => each !== "").join(" · ");
  const how = element("bdi", { className: "how soft small cut", textContent: words });
  return element("li", {}, element("a", { href: `#order=${order.reference}` }, amount, badge, how));
}

/** Show orders in a list, the newest first; it is left alone where nothing changes, and the focus with it.
 * @type {(where: HTMLElement, orders: Order[], height: bigint, synced: boolean) => void} */
export function list(where, orders, height, synced) {
  const sorted = [...orders].sort((one, other) => timeOf(other) - timeOf(one));
  const named = sorted.map((order) => ({ order, name: nameOf(order, height, synced) }));
  const shown = JSON.stringify(named.map(({ order, name }) => [order.reference, name]));
  if (where.dataset.shown === shown) return;
  where.dataset.shown = shown;
  where.replaceChildren(...named.map(({ order, name }) => row(order, height, name)));
}
