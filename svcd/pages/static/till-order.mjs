// The view of an order: the code that the buyer scans, and whether the goods may be handed over.

import { coins } from "./digits.mjs";
import { drawCode } from "./qr.mjs";
import { message } from "./texts.mjs";
import { refundOf, settlement, standingOf, sumOf, uriOf } from "./till-orders.mjs";
import { nameOf } from "./till-list.mjs";
import { visible } from "./visible.mjs";
import { byId, element, onClick, onCopy, show, write, writeAmount } from "./wallet-dom.mjs";

/** @import { Order, Payment, Standing } from "./till-orders.mjs" */
/** @import { Till } from "./till.mjs" */

/** Characters of a code that the camera of a phone reads easily. */
const MAX_CODE = 300;

/** The order that is shown.
 * @type {string | null} */
let shownOrder = null;
/** Whether the code is the payment URI, for a wallet app, and not the address of the wallet page. */
let forApp = false;
let uri = "";

/** @type {(link: string) => string} */
const pageOf = (link) => `${location.origin}/wallet/#pay=${encodeURIComponent(link)}`;

/** Whether the wallet page works in the browser of a buyer, who is on another device.
 * @type {() => boolean} */
const hasPage = () => location.protocol === "https:";

/** The text of the code.
 * @type {(full: string, short: string) => string} */
function codeOf(full, short) {
  const texts = forApp || !hasPage() ? [full, short] : [pageOf(full), pageOf(short), full, short];
  return texts.find(({ length }) => length <= MAX_CODE) ?? short;
}

/** @type {(till: Till, order: Order) => void} */
function draw({ settings }, order) {
  if (settings === null || order.amount === null) return;
  uri = uriOf(order, settings.recipient, settings.name);
  const code = /** @type {Element} */ (document.getElementById("order-code"));
  drawCode(code, codeOf(uri, uriOf(order, settings.recipient, "")));
  byId("order-open", HTMLAnchorElement).href = pageOf(uri);
  byId("order-other").hidden = !hasPage();
  write(byId("order-other"), message(forApp ? "till-script.code-page" : "till-script.code-app"));
}

/** @type {(till: Till) => Order | undefined} */
const current = ({ orders }) => orders.get(shownOrder ?? "");

/** Note what a person did with the order that is shown.
 * @type {(till: Till, change: (order: Order) => Partial<Order>) => Promise<void>} */
async function note(till, change) {
  const order = current(till);
  if (order) await till.keep([{ ...order, ...change(order) }]);
}

const handedOver = () => ({ done: Date.now(), reached: true });

/** @type {(till: Till) => void} */
export function wireOrder(till) {
  onClick(byId("order-next"), async () => {
    const order = current(till);
    const { state } = order ? standingOf(order, till.height) : { state: "" };
    if (state === "paid" && till.synced && order?.done === null) await note(till, handedOver);
    location.hash = "#sale";
  });
  onClick(byId("order-leave"), async () => {
    await note(till, () => ({ left: Date.now() }));
    location.hash = "#sale";
  });
  onClick(byId("order-hand-over"), () => note(till, handedOver));
  onClick(byId("order-settle"), () => note(till, (order) => settlement(order, till.height)));
  onClick(byId("order-other"), () => {
    forApp = !forApp;
    const order = current(till);
    if (order) draw(till, order);
  });
  onCopy(byId("order-copy"), () => uri, byId("order-live"));
}

/** What a part of the order is, and what it costs.
 * @type {(words: (string | Node)[], cost: bigint) => HTMLElement} */
function line(words, cost) {
  const price = element("span", { className: "amount", textContent: coins(cost) });
  return element("li", { className: "row" }, element("span", { className: "grow" }, ...words), price);
}

/** @type {(till: Till, order: Order) => void} */
export function enterOrder(till, order) {
  shownOrder = order.reference;
  delete byId("order-state").dataset.state;
  byId("order-payments", HTMLDetailsElement).open = false;
  draw(till, order);
  const typed = order.lines.length > 0 ? (order.amount ?? 0n) - sumOf(order.lines) : 0n;
  byId("order-lines").replaceChildren(
    ...order.lines.map(({ name, count, price }) => line([`${count} × `, element("bdi", { textContent: visible(name) })], price * BigInt(count))),
    ...(typed > 0n ? [line([message("till-script.typed")], typed)] : []),
  );
  write(byId("order-reference"), order.reference);
  show("order");
}

/** What the state means for whoever stands at the till.
 * @type {(order: Order, standing: Standing, synced: boolean) => string} */
function meaning({ amount, rule }, { state, confirmations, received }, synced) {
  const [price, arrived] = [amount ?? 0n, received].map(coins);
  if (!synced && ["paid", "late"].includes(state)) return message("till-script.behind-text");
  switch (state) {
    case "waiting":
      return message("till-script.waiting-text");
    case "left":
      return message("till-script.left-text");
    case "seen":
    case "confirming":
      return message("till-script.not-yet-text", { count: rule });
    case "paid":
      return confirmations === 0
        ? message("till-script.paid-seen-text")
        : message("till-script.paid-text", { count: confirmations });
    case "late":
      return message("till-script.late-text");
    case "wrong":
      return message("till-script.wrong-text", { arrived, price });
    case "undone":
      return message("till-script.undone-text");
    default:
      return message("till-script.unknown-text");
  }
}

/** Show how the order stands, if one is open.
 * @type {(till: Till) => void} */
export function showOrder(till) {
  const order = current(till);
  if (document.body.dataset.view !== "order" || !order || !till.settings) return;
  const standing = standingOf(order, till.height);
  const { state, owed, twice, urgent } = standing;
  const sure = till.synced || !["paid", "late"].includes(state);
  const where = byId("order-state");
  const before = where.dataset.state;
  where.dataset.state = sure ? state : "confirming";
  writeAmount(byId("order-amount"), order.amount ?? standing.received);
  const isPaid = state === "paid" && sure;
  write(byId("order-state-name"), isPaid ? message("till-script.paid") : nameOf(order, till.height, till.synced).text);
  write(byId("order-state-text"), meaning(order, standing, till.synced));
  byId("order-pay").hidden = !["waiting", "wrong"].includes(state) || order.left !== null;
  byId("order-twice").hidden = !twice;
  const besides = owed > 0n && !twice && ["paid", "seen", "confirming"].includes(state);
  byId("order-besides").hidden = !besides;
  if (besides) write(byId("order-besides"), message("till-script.besides", { amount: coins(owed) }));
  byId("order-next").classList.toggle("primary", isPaid);
  write(byId("order-next"), message(isPaid && order.done === null ? "till-script.handed-next" : "till-script.next"));
  byId("order-leave").hidden = !["waiting", "wrong"].includes(state) || order.left !== null || order.made === null;
  byId("order-hand-over").hidden = state !== "late" || !sure;
  byId("order-settle").hidden = !urgent;
  showPayments(till, order, standing);
  if (before !== undefined && before !== "paid" && where.dataset.state === "paid") {
    // Not the button: an Enter that was meant for something else would hand over.
    byId("order-title").focus({ preventScroll: true });
  }
}

/** @type {(till: Till, order: Order, standing: Standing) => void} */
function showPayments({ settings }, order, { urgent }) {
  const place = byId("order-payments", HTMLDetailsElement);
  place.hidden = order.payments.length + order.refunds.length === 0;
  const list = byId("order-payments-list");
  const shown = JSON.stringify([order.payments, order.refunds].flat().map(({ txid, other, height }) => [txid, other, `${height}`]));
  if (list.dataset.shown === `${urgent} ${shown}`) return;
  list.dataset.shown = `${urgent} ${shown}`;
  if (urgent) place.open = true;
  const label = message("till-script.refund-label", { name: settings?.name ?? "" });
  list.replaceChildren(
    ...order.payments.map((payment) => paymentRow(payment, refundOf(order, payment, label))),
    ...order.refunds.map((refund) => paymentRow(refund, null, true)),
  );
}

/** A payment with the way to refund it, or a refund.
 * @type {(payment: Payment, refund: string | null, isRefund?: boolean) => HTMLElement} */
function paymentRow({ txid, other, amount, height }, refund, isRefund = false) {
  const address = other === null ? "…" : `${other.slice(0, 10)}…${other.slice(-6)}`;
  const words = isRefund
    ? message("till-script.refunded", { amount: coins(amount), address })
    : message("till-script.arrived", { amount: coins(amount), address });
  const seen = height === null ? ` ${message("till-script.in-no-block")}` : "";
  const link = element("a", { href: `/tx/${txid}`, className: "alone", textContent: message("till-script.transfer") });
  /** @type {HTMLElement[]} */
  const ways = [link];
  if (refund !== null) {
    const button = { className: "button small", textContent: message("till-script.refund") };
    ways.unshift(element("a", { href: pageOf(refund), target: "_blank", rel: "noopener", ...button }));
    ways.push(element("a", { href: refund, className: "alone", textContent: message("till-script.refund-app") }));
  }
  return element("li", { className: "stack tight" }, element("span", { textContent: words + seen }), element("span", { className: "row" }, ...ways));
}
