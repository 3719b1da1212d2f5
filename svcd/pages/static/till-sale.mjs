// The view in which an amount is typed or put together from the price list, and the orders that are open.

import { typedAmount } from "./amounts.mjs";
import { coins } from "./digits.mjs";
import { must } from "./problem.mjs";
import { message } from "./texts.mjs";
import { atCounter, charactersOf, dayOf, newOrder, pricesIn, referenceOf, slugOf, sumOf } from "./till-orders.mjs";
import { list } from "./till-list.mjs";
import { wake } from "./till-sound.mjs";
import { GREATEST } from "./units.mjs";
import { visible } from "./visible.mjs";
import { byId, element, onSubmit, show, tell, write, writeAmount } from "./wallet-dom.mjs";

/** @import { Item, Line } from "./till-orders.mjs" */
/** @import { Settings } from "./till-store.mjs" */
/** @import { Till } from "./till.mjs" */

/** What is chosen of the price list, in the order of that.
 * @type {Line[]} */
let lines = [];

const typed = () => byId("sale-amount", HTMLInputElement);

/** Base units of what is typed, 0 for nothing; throws `amount`. */
const typedUnits = () => (typed().value.trim() === "" ? 0n : typedAmount(typed().value.trim()));

/** What is to be paid; null while what is typed is no amount. */
function total() {
  try {
    return sumOf(lines) + typedUnits();
  } catch {
    return null;
  }
}

function showTotal() {
  const sum = total();
  const where = byId("sale-total");
  if (sum === null) {
    delete where.dataset.shown;
    write(where, "…");
  } else writeAmount(where, sum);
  tell(byId("sale-error"), null);
  byId("sale-lines").replaceChildren(...lines.filter(({ count }) => count > 0).map(row));
}

/** A line of the order, with a button that takes one away.
 * @type {(line: Line) => HTMLElement} */
function row(line) {
  const less = element("button", { type: "button", className: "small", textContent: "−" });
  less.setAttribute("aria-label", message("till-script.less", { name: visible(line.name) }));
  less.addEventListener("click", () => {
    line.count -= 1;
    showTotal();
    typed().focus({ preventScroll: true });
  });
  const words = element("span", { className: "grow" }, `${line.count} × `, element("bdi", { textContent: visible(line.name) }));
  const price = element("span", { className: "amount", textContent: coins(line.price * BigInt(line.count)) });
  return element("li", { className: "row" }, words, price, less);
}

/** The button of an item.
 * @type {(line: Line) => HTMLElement} */
function key(line) {
  const name = element("bdi", { textContent: visible(line.name) });
  const price = element("span", { className: "amount small", textContent: coins(line.price) });
  const button = element("button", { type: "button", className: "item" }, name, price);
  button.addEventListener("click", ({ detail }) => {
    line.count += 1;
    showTotal();
    // After a finger or a mouse, Enter is for the order; after a key, the same key adds one more.
    if (detail > 0) typed().focus({ preventScroll: true });
  });
  return button;
}

/** Press a key of the keypad.
 * @type {(text: string) => void} */
function press(text) {
  const field = typed();
  field.value = text === "" ? field.value.slice(0, -1) : field.value + text;
  showTotal();
}

/** Make the order, and open it.
 * @type {(till: Till, settings: Settings) => Promise<void>} */
async function sell(till, { name, rule, turn }) {
  const amount = sumOf(lines) + typedUnits();
  must(amount > 0n, "amount", message("wallet-script.amount-positive"));
  must(amount <= GREATEST, "amount", message("wallet-script.amount-most", { most: coins(GREATEST) }));
  const [now, slug] = [Date.now(), slugOf(name)];
  const random = charactersOf(crypto.getRandomValues(new Uint8Array(8)));
  const reference = referenceOf(slug, dayOf(now, turn), random, amount);
  const chosen = lines.filter(({ count }) => count > 0).map((line) => ({ ...line }));
  await till.keep([newOrder(reference, till.key, rule, chosen, now)]);
  lines.forEach((line) => (line.count = 0));
  typed().value = "";
  location.hash = `#order=${reference}`;
}

/** @type {(till: Till) => void} */
export function wireSale(till) {
  typed().addEventListener("input", showTotal);
  document.addEventListener("keydown", ({ key, target }) => {
    const isElsewhere = target !== typed() && document.body.dataset.view === "sale";
    if (isElsewhere && /^[0-9.,]$/.test(key)) typed().focus({ preventScroll: true });
  });
  for (const button of byId("keypad").querySelectorAll("button")) {
    button.addEventListener("click", () => press(button.dataset.key ?? ""));
  }
  byId("sale-clear").addEventListener("click", () => {
    lines.forEach((line) => (line.count = 0));
    typed().value = "";
    showTotal();
    typed().focus();
  });
  onSubmit(byId("sale-form"), byId("sale-error"), async () => {
    wake();
    if (till.settings !== null) await sell(till, till.settings);
  });
}

/** @type {(till: Till, settings: Settings) => void} */
export function enterSale(till, { name, prices }) {
  /** @type {Item[]} */
  const items = pricesIn(prices, typedAmount);
  const same = items.length === lines.length && items.every((each, at) => each.name === lines[at].name && each.price === lines[at].price);
  // What is chosen stays while the person looks elsewhere.
  if (!same) lines = items.map((item) => ({ ...item, count: 0 }));
  write(byId("sale-title"), visible(name));
  byId("sale-items").replaceChildren(...lines.map(key));
  showTotal();
  show("sale");
  typed().focus({ preventScroll: true });
}

/** @type {(till: Till) => void} */
export function showOpen({ orders, height, synced }) {
  const { shown, more } = atCounter([...orders.values()], height);
  byId("open").hidden = shown.length === 0;
  list(byId("open-orders"), shown, height, synced);
  byId("open-more").hidden = more === 0;
  write(byId("open-more"), message("till-script.more", { count: more }));
}
