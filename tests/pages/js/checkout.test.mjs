// The checkout and the explorer without a browser: what they show, when they ask, and when they stop.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Pruned, show, viewOf, watch } from "../../../svcd/pages/static/checkout.mjs";
import { copyText, press } from "../../../svcd/pages/static/copy.mjs";
import { newsOf } from "../../../svcd/pages/static/explorer.mjs";
import { leadsOn, leadsToApp } from "../../../svcd/pages/static/pressed.mjs";

const PAYMENT = {
  state: "confirming",
  amount: "250000000",
  confirmations: 2,
  requiredConfirmations: 12,
  txid: "ab",
  matchCount: 1,
  mismatches: [{ txid: "cd", amount: "300000000", amountSvc: "3", confirmations: 0 }],
  node: { height: "7", hash: "ef", synced: true },
};

/** As much of a page as the checkout touches; `parts` are the elements by selector. */
function page(state, until) {
  const element = (dataset = {}) => ({
    dataset,
    hidden: false,
    textContent: "",
    value: 0,
    attributes: {},
    children: [],
    setAttribute(name, value) {
      this.attributes[name] = value;
    },
    replaceChildren(...children) {
      this.children = children;
    },
    get text() {
      return this.children.join("");
    },
  });
  const phases = ["unpaid", "pending", "confirming", "confirmed", "short", "mismatched", "gone", "expired", "unknown"];
  const views = phases.map((when) => ({
    ...element({ when }),
    hidden: when !== state,
    querySelector: () => ({ textContent: `Heading of ${when}` }),
  }));
  const classes = new Set();
  const classList = {
    contains: (name) => classes.has(name),
    toggle: (name, on) => (on ? classes.add(name) : classes.delete(name)),
  };
  const transfer = { ...element(), parentElement: element() };
  const parts = {
    '[data-fill="confirmations"]': element(),
    '[data-fill="progress"]': element(),
    '[data-fill="transfer"]': transfer,
    '[data-fill="mismatches"]': element(),
    "[data-twice]": element(),
    "[data-misses]": element(),
    "[data-trouble]": element(),
    "[data-outdated]": element(),
    "[data-kept]": { ...element(), hidden: true },
    '[data-fill="first"]': element(),
    "[data-offer]": { ...element(), open: true, classList },
    "[data-fallen]": { ...element(), hidden: true },
    '[data-fill="left"]': element(),
    '[data-fill="txid"]': element(),
    '[data-fill="time"]': element(),
    "[data-pay-before]": element(),
    "[data-late]": { ...element(), hidden: true },
    "[data-return]": element(),
    "[data-takes]": element(),
    "[data-waits]": { ...element(), hidden: true },
    '[data-fill="remaining"]': element(),
  };
  const sample = (id) => ({
    content: {
      firstElementChild: {
        cloneNode() {
          const inner = { '[data-fill="coins"]': element(), '[data-fill="difference"]': element(), a: element() };
          return { id, inner, querySelector: (selector) => inner[selector] };
        },
      },
    },
  });
  const ownerDocument = Object.assign(new EventTarget(), {
    hidden: false,
    getElementById: sample,
    title: `Heading of ${state}: 2.5 SVC`,
  });
  const root = {
    ...element({ state, status: "/rpc/x", blockSeconds: "60", idleSeconds: "300", tip: "ef", tipTime: "0", ...(until && { until }) }),
    ownerDocument,
    querySelectorAll: (selector) => (selector === "[data-when]" ? views : [parts[selector]]),
    querySelector: (selector) => parts[selector],
  };
  return { root, parts, views };
}

/** Let promises that are due be settled. */
async function settle() {
  for (let round = 0; round < 10; round += 1) {
    await Promise.resolve();
  }
}

test("a verification result becomes what is shown", () => {
  const view = viewOf(PAYMENT);
  assert.deepEqual(view.mismatches, [{ coins: "3", difference: "0.5", less: false, txid: "cd" }]);
  assert.deepEqual([view.state, view.confirmations, view.progress, view.final, view.twice], ["confirming", "2", 2, false, false]);
  const deep = viewOf({ ...PAYMENT, state: "confirmed", confirmations: 99, node: { ...PAYMENT.node, synced: false } });
  assert.deepEqual([deep.state, deep.confirmations, deep.progress], ["confirming", "12", 12]);
  assert.equal(viewOf({ ...PAYMENT, state: "confirmed", matchCount: 2 }).final, true);
  assert.equal(viewOf({ ...PAYMENT, txid: undefined }).txid, "");
});

/** A watch whose timers the test rings, and what it asks: for how many seconds each question waits, from which state. */
function watched(state, answers, { until, now = 0, deepest = "unpaid", inTime = false, missing = [] } = {}) {
  const shown = page(state, until);
  for (const name of missing) {
    delete shown.root.dataset[name];
  }
  const timers = {
    due: null,
    pause: null,
    setTimeout: (work, pause) => Object.assign(timers, { due: work, pause }) && 1,
    clearTimeout: () => (timers.due = null),
  };
  const asked = [];
  const poller = watch(shown.root, {
    asked: async (path, { wait, state, signal }) => {
      asked.push([path, wait, state]);
      const answer = answers[Math.min(asked.length, answers.length) - 1];
      if (answer === null) throw new Error("away");
      if (typeof answer === "bigint") throw new Pruned(`${answer}`);
      if (answer === "wait") await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      return { ...viewOf(answer), now: typeof now === "function" ? now() : now };
    },
    timers,
    remembered: { read: () => ({ deepest, inTime }), write: (seen) => ({ deepest, inTime } = { deepest, inTime, ...seen }) },
  });
  const phase = () => shown.views.filter((view) => !view.hidden).map((view) => view.dataset.when).join();
  return { ...shown, asked, poller, timers, phase, waits: () => asked.map(([, wait]) => wait) };
}

test("the page shows each state, and asks slowly after the last", async () => {
  const last = { ...PAYMENT, state: "confirmed", confirmations: 12, matchCount: 2, mismatches: [] };
  const { root, parts, phase, asked, timers } = watched("unpaid", [PAYMENT, last]);
  await settle();
  assert.deepEqual([root.dataset.state, asked], ["confirming", [["/rpc/x", 0, "unpaid"]]]);
  assert.equal(parts["[data-offer]"].hidden, true);
  assert.equal(phase(), "confirming");
  assert.equal(parts['[data-fill="left"]'].textContent, "About 10 minutes left");
  assert.equal(parts['[data-fill="transfer"]'].attributes.href, "/tx/ab");
  const [miss] = parts['[data-fill="mismatches"]'].children;
  const told = ['[data-fill="coins"]', '[data-fill="difference"]'].map((part) => miss.inner[part].text);
  assert.deepEqual([miss.id, ...told, miss.inner.a.attributes.href], ["mismatch-more", "3", "0.5", "/tx/cd"]);
  assert.deepEqual([parts["[data-misses]"].hidden, parts["[data-twice]"].hidden], [false, true]);
  timers.due();
  await settle();
  assert.equal(phase(), "confirmed");
  assert.deepEqual([parts["[data-misses]"].hidden, parts["[data-twice]"].hidden], [true, false]);
  assert.deepEqual([timers.pause, asked[1]], [30_000, ["/rpc/x", 10, "confirming"]]);
  timers.due();
  await settle();
  assert.deepEqual([timers.pause, asked[2]], [30_000, ["/rpc/x", 0, "confirmed"]]);
});

test("a node that lacks the newest blocks shows nothing as paid, and the page goes on", async () => {
  const paid = { ...PAYMENT, state: "confirmed", confirmations: 12 };
  const behind = { ...paid, node: { ...PAYMENT.node, synced: false } };
  const { root, parts, phase, timers, asked } = watched("unpaid", [behind, behind, paid]);
  await settle();
  assert.deepEqual([root.dataset.state, parts["[data-outdated]"].hidden], ["confirming", false]);
  assert.equal(parts['[data-fill="left"]'].textContent, "Time unknown");
  assert.equal(phase(), "confirming");
  timers.due();
  await settle();
  assert.deepEqual(asked[1], ["/rpc/x", 10, "confirmed"], "it waits for a change of what the node told");
  timers.due();
  await settle();
  assert.deepEqual([root.dataset.state, parts["[data-outdated]"].hidden], ["confirmed", true]);
  assert.equal(timers.pause, 30_000);
});

const UNPAID = { ...PAYMENT, state: "unpaid", txid: undefined, confirmations: 0, mismatches: [] };

test("a paid order that a reorganisation takes back is told of, and must not be paid again", async () => {
  const paid = { ...PAYMENT, state: "confirmed", confirmations: 12 };
  const pending = { ...PAYMENT, state: "pending", confirmations: 0 };
  const { parts, phase, timers } = watched("confirmed", [paid, UNPAID, pending, PAYMENT, paid]);
  const seen = [];
  for (let round = 0; round < 5; round += 1) {
    await settle();
    const offer = parts["[data-offer]"];
    seen.push([phase(), parts["[data-fallen]"].hidden, offer.hidden, offer.open]);
    timers.due();
  }
  assert.deepEqual(seen, [
    ["confirmed", true, true, true],
    ["gone", true, false, false],
    ["pending", false, true, true],
    ["confirming", false, true, true],
    ["confirmed", true, true, true],
  ]);
});

test("a reload does not forget how deep the payment was, and a node that is behind does not know", async () => {
  const outdated = { ...UNPAID, node: { ...UNPAID.node, synced: false } };
  const { phase, timers } = watched("unpaid", [outdated, UNPAID], { deepest: "confirmed" });
  await settle();
  assert.equal(phase(), "unpaid");
  timers.due();
  await settle();
  assert.equal(phase(), "gone");
});

test("an order that the node cannot look up any more is unknown: neither unpaid nor to be paid", async () => {
  for (const before of [UNPAID, { ...PAYMENT, state: "pending" }, PAYMENT]) {
    const { root, parts, phase, timers, asked } = watched("unpaid", [before, 12_345n, 12_346n, before], { until: "99000" });
    await settle();
    assert.equal(phase(), before.state);
    for (const [first, wait] of [["12\u202f345", 10], ["12\u202f346", 0]]) {
      timers.due();
      await settle();
      assert.deepEqual([phase(), root.dataset.state, parts['[data-fill="first"]'].textContent], ["unknown", "unknown", first]);
      const hidden = ["offer", "pay-before", "fallen", "kept", "trouble"].map((name) => parts[`[data-${name}]`].hidden);
      assert.deepEqual(hidden, Array(5).fill(true));
      assert.deepEqual([timers.pause, asked.at(-1)[1], root.ownerDocument.title], [30_000, wait, "Heading of unknown: 2.5 SVC"]);
    }
    timers.due();
    await settle();
    assert.deepEqual([phase(), root.dataset.state, parts["[data-offer]"].hidden], [before.state, before.state, before !== UNPAID]);
  }
});

test("a paid order that the node cannot look up any more stays as it was, and the page says so", async () => {
  const paid = { ...PAYMENT, state: "confirmed", confirmations: 12 };
  const { root, parts, phase, timers } = watched("confirmed", [paid, 7n, paid]);
  const seen = [];
  for (let round = 0; round < 3; round += 1) {
    await settle();
    seen.push([phase(), root.dataset.state, parts["[data-kept]"].hidden, timers.pause]);
    timers.due();
  }
  const shown = (kept) => ["confirmed", "confirmed", kept, 30_000];
  assert.deepEqual(seen, [shown(true), shown(false), shown(true)]);
});

test("a payment of a wrong amount folds the ways to pay, once", async () => {
  const wrong = { ...UNPAID, mismatches: PAYMENT.mismatches };
  const { parts, phase, timers } = watched("unpaid", [UNPAID, wrong]);
  const offer = parts["[data-offer]"];
  await settle();
  assert.deepEqual([phase(), offer.open, offer.hidden], ["unpaid", true, false]);
  timers.due();
  await settle();
  assert.deepEqual([phase(), offer.open, offer.hidden], ["mismatched", false, false]);
  offer.open = true;
  timers.due();
  await settle();
  assert.equal(offer.open, true, "what the buyer has unfolded stays so");
});

test("an order that cannot be paid stays folded when the answers come", async () => {
  const { root, parts } = watched("unpaid", [UNPAID]);
  root.dataset.unpayable = "";
  await settle();
  assert.deepEqual([parts["[data-offer]"].open, parts["[data-offer]"].hidden], [false, false]);
});

test("too little has words of its own", async () => {
  const short = { ...UNPAID, mismatches: [{ txid: "cd", amount: "200000000" }] };
  const { parts, phase } = watched("unpaid", [short]);
  await settle();
  const [miss] = parts['[data-fill="mismatches"]'].children;
  assert.deepEqual([phase(), miss.id, miss.inner['[data-fill="difference"]'].text], ["short", "mismatch-less", "0.5"]);
});

test("no time is promised once no block has come for long, and then one is waited for", async () => {
  const times = [299_999, 300_000, 300_001, 300_002];
  const next = { ...PAYMENT, confirmations: 3, node: { ...PAYMENT.node, hash: "ee" } };
  const { parts, timers } = watched("unpaid", [PAYMENT, PAYMENT, PAYMENT, next], { now: () => times.shift() });
  const said = [];
  for (let round = 0; round < 4; round += 1) {
    await settle();
    said.push(parts['[data-fill="left"]'].textContent);
    timers.due();
  }
  assert.deepEqual(said, ["About 10 minutes left", "About 10 minutes left", "Waits for the next block", "About 9 minutes left"]);
});

test("no time is promised where blocks have no usual time, not even of a block that has just come", async () => {
  const next = { ...PAYMENT, confirmations: 3, node: { ...PAYMENT.node, hash: "ee" } };
  const { parts, timers } = watched("unpaid", [PAYMENT, next], { missing: ["blockSeconds", "idleSeconds"] });
  const said = [];
  for (let round = 0; round < 2; round += 1) {
    await settle();
    said.push(["left", "confirmations"].map((name) => parts[`[data-fill="${name}"]`].textContent));
    timers.due();
  }
  assert.deepEqual(said, [["Waits for the next block", "2"], ["Waits for the next block", "3"]]);
});

test("a time is promised however old the newest block is where blocks come by themselves and are dated back", async () => {
  const { parts } = watched("unpaid", [UNPAID], { missing: ["idleSeconds"], now: 5_400_000 });
  await settle();
  assert.equal(parts["[data-takes]"].hidden, false);
  assert.match(parts['[data-fill="left"]'].textContent, /minutes left$/);
});

test("what an unpaid order takes is told while blocks come, from the time of the newest one on", async () => {
  const next = { ...UNPAID, node: { ...UNPAID.node, hash: "ee" } };
  const behind = { ...next, node: { ...next.node, synced: false } };
  const times = [300_000, 300_001, 400_000, 400_001, 400_002];
  const { parts, timers } = watched("unpaid", [UNPAID, UNPAID, next, behind, next], { now: () => times.shift() });
  const said = [];
  for (let round = 0; round < 5; round += 1) {
    await settle();
    said.push(["takes", "waits"].filter((name) => !parts[`[data-${name}]`].hidden).join());
    timers.due();
  }
  assert.deepEqual(said, ["takes", "waits", "takes", "waits", "takes"]);
});

test("a payment that came after the order had expired is late, unless it was seen before", async () => {
  const pending = { ...PAYMENT, state: "pending", confirmations: 0 };
  const inBlock = (blockTime) => ({ ...PAYMENT, blockTime });
  const late = async (answers, options) => {
    const times = [...options.times];
    const { parts, timers } = watched("unpaid", answers, { until: "12000", now: () => times.shift(), ...options });
    for (let round = 1; round < answers.length; round += 1) {
      await settle();
      timers.due();
    }
    await settle();
    return !parts["[data-late]"].hidden;
  };
  assert.equal(await late([pending], { times: [11_999] }), false);
  assert.equal(await late([pending], { times: [12_000] }), true);
  assert.equal(await late([pending], { times: [12_000], inTime: true }), false);
  assert.equal(await late([pending, inBlock("12000")], { times: [11_999, 15_000] }), false);
  assert.equal(await late([inBlock("12000")], { times: [15_000] }), true);
  assert.equal(await late([inBlock("11999")], { times: [15_000] }), false);
  assert.equal(await late([UNPAID], { times: [15_000] }), false);
});

/** A link, and what a browser does around it. */
function pressable(visibilityState = "visible") {
  const attributes = new Map();
  const link = Object.assign(new EventTarget(), {
    textContent: "Pay",
    dataset: { busy: "Opening …" },
    hasAttribute: (name) => attributes.has(name),
    setAttribute: (name, value) => attributes.set(name, value),
    removeAttribute: (name) => attributes.delete(name),
  });
  const due = [];
  const press = (more = {}) => link.dispatchEvent(Object.assign(new Event("click"), more));
  return { link, press, due, page: { visibilityState }, view: new EventTarget(), timers: { setTimeout: (work) => due.push(work) } };
}

test("a link says at once that it was pressed, and is itself again when somebody comes back", () => {
  const { link, press, due, view, timers } = pressable();
  leadsOn(link, view, timers);
  press({ ctrlKey: true });
  assert.deepEqual([link.textContent, due], ["Pay", []], "another tab");
  press();
  press();
  assert.deepEqual([link.textContent, link.hasAttribute("aria-busy"), due.length], ["Opening …", true, 1]);
  view.dispatchEvent(new Event("pageshow"));
  assert.deepEqual([link.textContent, link.hasAttribute("aria-busy")], ["Pay", false]);
});

test("where no app takes a link, the page says so after a second", () => {
  for (const [visibility, event, told] of [["visible", null, 1], ["visible", "blur", 0], ["hidden", null, 0]]) {
    const { link, press, due, page, view, timers } = pressable(visibility);
    let untaken = 0;
    leadsToApp(link, () => (untaken += 1), page, view, timers);
    press();
    assert.deepEqual([link.textContent, untaken], ["Opening …", 0]);
    if (event) view.dispatchEvent(new Event(event));
    due[0]();
    assert.deepEqual([link.textContent, untaken], ["Pay", told]);
  }
});

test("an order that has expired is shown as expired, though a wrong amount came", () => {
  const { root, parts, phase } = watched("unpaid", [UNPAID]);
  const mismatched = viewOf({ ...UNPAID, mismatches: PAYMENT.mismatches });
  const view = { ...mismatched, fallen: false, late: false, moving: true, left: "", remaining: 0 };
  show(root, { ...view, expired: true });
  assert.deepEqual([phase(), parts["[data-offer]"].hidden], ["expired", true]);
  show(root, { ...view, expired: false });
  assert.equal(phase(), "mismatched");
});

test("the page waits at the node, and asks again at once", async () => {
  const unpaid = { ...PAYMENT, state: "unpaid", txid: undefined };
  const { timers, waits } = watched("unpaid", [unpaid]);
  for (let round = 0; round < 3; round += 1) {
    await settle();
    assert.equal(timers.pause, round === 0 ? 0 : 100);
    timers.due();
  }
  await settle();
  assert.deepEqual(waits(), [0, 10, 10, 10]);
});

test("where the node refuses the wait the page asks every two seconds, and tries again after half a minute", async () => {
  const { parts, timers, waits } = watched("unpaid", [PAYMENT, null, PAYMENT]);
  const pauses = [];
  for (let round = 0; round < 18; round += 1) {
    await settle();
    pauses.push(timers.pause);
    timers.due();
  }
  await settle();
  assert.deepEqual(waits(), [0, 10, ...Array(15).fill(0), 10, 10]);
  assert.deepEqual(pauses, [0, 100, ...Array(14).fill(2000), 100, 100]);
  assert.equal(parts["[data-trouble]"].hidden, true);
});

test("a hidden page ends its wait, and asks at once when it is seen again", async () => {
  const { root, timers, waits } = watched("unpaid", [PAYMENT, "wait", PAYMENT]);
  await settle();
  timers.due();
  await settle();
  assert.deepEqual(waits(), [0, 10]);
  const show = (hidden) => {
    root.ownerDocument.hidden = hidden;
    root.ownerDocument.dispatchEvent(new Event("visibilitychange"));
  };
  show(true);
  await settle();
  assert.deepEqual([waits(), timers.due], [[0, 10], null]);
  show(false);
  await settle();
  assert.deepEqual(waits(), [0, 10, 0]);
});

test("an order expires by the time of the node, and not once it is paid", async () => {
  const unpaid = { ...PAYMENT, state: "unpaid", txid: undefined, mismatches: [] };
  const times = [5_000, 12_000, 12_500];
  const { root, parts, phase, timers, waits } = watched("unpaid", [unpaid, unpaid, PAYMENT], { until: "12000", now: () => times.shift() });
  const shown = () => [phase(), parts["[data-offer]"].hidden, parts["[data-pay-before]"].hidden, parts['[data-fill="remaining"]'].textContent];
  await settle();
  assert.deepEqual(shown(), ["unpaid", false, false, "Less than a minute left"]);
  assert.equal(root.ownerDocument.title, "Heading of unpaid: 2.5 SVC");
  timers.due();
  await settle();
  assert.deepEqual([shown(), waits()], [["expired", true, true, ""], [0, 7]]);
  assert.equal(root.ownerDocument.title, "Heading of expired: 2.5 SVC");
  timers.due();
  await settle();
  assert.deepEqual([shown(), waits()], [["confirming", true, true, ""], [0, 7, 10]]);
});

test("a payment that was taken back after the order has expired may still return", async () => {
  const { parts, phase } = watched("unpaid", [{ ...UNPAID }], { until: "12000", now: 13_000, deepest: "confirmed" });
  await settle();
  assert.deepEqual([phase(), parts["[data-offer]"].hidden, parts["[data-pay-before]"].hidden], ["gone", true, true]);
});

test("a node that does not answer is told of after the second time, and no longer when it does", async () => {
  const { root, parts, timers } = watched("unpaid", [null, null, PAYMENT]);
  await settle();
  assert.equal(parts["[data-trouble]"].hidden, true);
  timers.due();
  await settle();
  assert.deepEqual([parts["[data-trouble]"].hidden, root.dataset.state], [false, "unpaid"]);
  timers.due();
  await settle();
  assert.deepEqual([parts["[data-trouble]"].hidden, root.dataset.state], [true, "confirming"]);
});

test("copying says whether it worked", async () => {
  const taken = [];
  assert.equal(await copyText("x", { writeText: async (text) => taken.push(text) }), true);
  assert.equal(await copyText("x", undefined), false);
  const button = { dataset: { copy: "2.5" }, firstChild: { data: "Copy" } };
  let later;
  await press(button, { writeText: async (text) => taken.push(text) }, (put) => (later = put));
  assert.deepEqual([button.firstChild.data, taken], ["Copied", ["x", "2.5"]]);
  await press(button, { writeText: () => Promise.reject(new Error("no")) }, (put) => (later = put));
  assert.equal(button.firstChild.data, "Not allowed");
  later();
  assert.equal(button.firstChild.data, "Copy");
});

test("new blocks are news, and nothing else is", () => {
  const shown = { height: "5", hash: "a" };
  assert.equal(newsOf(shown, { height: "5", hash: "a" }), "");
  assert.equal(newsOf(shown, { height: "6", hash: "b" }), "Show 1 new block");
  assert.equal(newsOf(shown, { height: "8", hash: "b" }), "Show 3 new blocks");
  for (const height of ["5", "4"]) assert.equal(newsOf(shown, { height, hash: "b" }), "Show 1 new block", "replaced");
});
