// Keeps the checkout page up to date without reloading it. All words are in the page; this shows the right ones.

import { PRUNED, objectIn, question, textOf } from "./answers.mjs";
import { digitNodes, grouped } from "./digits.mjs";
import { blocksLeft, secondsPerBlock } from "./expectation.mjs";
import { LongPoll, PAUSE } from "./long-poll.mjs";
import { Poller } from "./polling.mjs";
import { leadsOn, leadsToApp } from "./pressed.mjs";
import { localTime, timeLeft } from "./texts.mjs";
import { formatAmount } from "./units.mjs";

/** @typedef {"unpaid" | "pending" | "confirming" | "confirmed"} PaymentState */
/**
 * @typedef {object} Verification
 * @property {PaymentState} state
 * @property {{ synced: boolean, hash: string }} node
 * @property {number} requiredConfirmations
 * @property {number} confirmations
 * @property {string | null} [blockTime]
 * @property {string | null} [txid]
 * @property {number} matchCount
 * @property {string} amount
 * @property {{ amount: string, txid: string }[]} mismatches
 */
/** @typedef {{ ok: boolean, error: string, pruneHeight: string, payment: Verification }} Verified an answer. */
/** @typedef {ReturnType<typeof viewOf>} View */
/**
 * @typedef {View & Moment} Shown
 * @typedef {object} Moment what depends on the time, and on what was shown before
 * @property {boolean} fallen whether the payment was deeper before
 * @property {boolean} expired
 * @property {boolean} late whether the payment came after the order had expired
 * @property {boolean} moving whether blocks come, so that a time may be promised
 * @property {string} left how long the missing confirmations still take
 * @property {number} remaining milliseconds until the order expires
 */
/** @typedef {{ deepest: string, inTime: boolean }} Memory */
/** @typedef {{ wait: number, state: string, signal: AbortSignal }} Waiting */
/**
 * @typedef {object} Parts
 * @property {typeof ask} [asked]
 * @property {Pick<typeof globalThis, "setTimeout" | "clearTimeout">} [timers]
 * @property {typeof memory} [remembered]
 */

const PATIENCE = 2;
// Seconds. A change between two questions that leaves the state as it is, such as a confirmation, shows that much later.
const LONGEST = 10;
// Milliseconds between questions about a paid order, which a reorganisation may take back.
const SLOW = 30_000;
const DEPTHS = ["unpaid", "pending", "confirming", "confirmed"];

/** The node has only the blocks from the height `first` on, and an earlier one may have the payment. */
export class Pruned extends Error {
  /** @param {string} first */
  constructor(first) {
    super(first);
    this.first = first;
  }
}

/** What the page shows of a verification result, as plain values.
 *
 * A payment is shown as paid only while the node knows the newest blocks; `told` is the state in the node's words.
 * @param {Verification} payment */
export function viewOf(payment) {
  const required = payment.requiredConfirmations;
  const outdated = !payment.node.synced;
  const final = payment.state === "confirmed" && !outdated;
  // More than required is not told: on a node that is not in sync, the payment is not confirmed all the same.
  const progress = Math.min(payment.confirmations, required);
  return {
    told: payment.state,
    state: payment.state === "confirmed" && !final ? "confirming" : payment.state,
    outdated,
    confirmations: grouped(progress),
    progress,
    missing: Math.max(required - payment.confirmations, 0),
    time: payment.blockTime ?? "",
    final,
    txid: payment.txid ?? "",
    twice: payment.matchCount > 1,
    tip: payment.node.hash,
    mismatches: payment.mismatches.map(({ amount, txid }) => {
      const excess = BigInt(amount) - BigInt(payment.amount);
      const difference = formatAmount(excess < 0n ? -excess : excess);
      return { coins: formatAmount(amount), difference, less: excess < 0n, txid };
    }),
  };
}

/** The deepest state that this tab has seen of its order, and whether it has seen the payment before the order expired.
 *
 * This outlives a reload, and the page stores nothing else. */
const memory = {
  /** @type {() => Memory} */
  read: () => ({ deepest: "unpaid", inTime: false, ...history.state }),
  /** @type {(seen: Partial<Memory>) => void} */
  write: (seen) => history.replaceState({ ...history.state, ...seen }, ""),
};

/** Which of the views belongs to a state: for an order that is not paid there are four more.
 * @type {(view: Pick<Shown, "state" | "fallen" | "mismatches" | "expired">) => string} */
function phaseOf({ state, fallen, mismatches, expired }) {
  if (state !== "unpaid") return state;
  if (fallen) return "gone";
  if (expired) return "expired";
  if (mismatches.length === 0) return "unpaid";
  return mismatches.every(({ less }) => less) ? "short" : "mismatched";
}

/** A part that the page always has.
 * @type {(root: HTMLElement, selector: string) => HTMLElement} */
const within = (root, selector) => /** @type {HTMLElement} */ (root.querySelector(selector));

/** Show the view of a phase, and begin the title with its heading.
 * @type {(root: HTMLElement, phase: string) => void} */
function turnTo(root, phase) {
  const page = root.ownerDocument;
  const parts = [.../** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-when]"))];
  const before = parts.find(({ hidden }) => !hidden);
  for (const part of parts) {
    setHidden(part, part.dataset.when !== phase);
  }
  const now = parts.find(({ hidden }) => !hidden);
  if (before && now && before !== now) {
    page.title = page.title.replace(within(before, "h2").textContent, within(now, "h2").textContent);
  }
}

/** Show that the node cannot tell any more whether the order is paid; one that was shown as paid stays so.
 * @type {(root: HTMLElement, first: string) => void} */
function showUnknown(root, first) {
  for (const place of root.querySelectorAll('[data-fill="first"]')) {
    setText(place, grouped(first));
  }
  const paid = root.dataset.state === "confirmed";
  setHidden(within(root, "[data-kept]"), !paid);
  if (paid) return;
  root.dataset.state = "unknown";
  turnTo(root, "unknown");
  for (const selector of ["[data-offer]", "[data-pay-before]", "[data-fallen]"]) {
    setHidden(root.querySelector(selector), true);
  }
}

/** Write a view into the page; what is the same already is left alone, so that it is not read out again.
 * @type {(root: HTMLElement, view: Shown) => void} */
export function show(root, view) {
  if (root.dataset.state !== view.state) {
    root.dataset.state = view.state;
  }
  const phase = phaseOf(view);
  turnTo(root, phase);
  setHidden(within(root, "[data-kept]"), true);
  setHidden(within(root, "[data-fallen]"), !view.fallen || phase === "gone");
  const offer = /** @type {HTMLDetailsElement} */ (within(root, "[data-offer]"));
  const folded = root.dataset.unpayable !== undefined || ["gone", "short", "mismatched"].includes(phase);
  // Only when that changes: what the buyer has unfolded stays so.
  if (offer.classList.contains("folded") !== folded) {
    offer.classList.toggle("folded", folded);
    offer.open = !folded;
  }
  setHidden(offer, view.state !== "unpaid" || view.expired);
  setHidden(root.querySelector("[data-pay-before]"), !["unpaid", "short", "mismatched"].includes(phase));
  setHidden(root.querySelector("[data-late]"), !view.late);
  const remaining = root.querySelector('[data-fill="remaining"]');
  if (remaining) {
    // Never too much, also not until the next answer comes.
    const least = view.remaining / 1000 - LONGEST;
    setText(remaining, Number.isFinite(least) ? timeLeft(least, Math.floor) : "");
  }
  setHidden(root.querySelector("[data-return]"), phase === "confirmed" || phase === "expired");
  setHidden(root.querySelector("[data-takes]"), !view.moving);
  setHidden(root.querySelector("[data-waits]"), view.moving);
  for (const left of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll('[data-fill="left"]'))) {
    setText(left, view.left);
  }
  setText(within(root, '[data-fill="txid"]'), view.txid);
  setText(within(root, '[data-fill="time"]'), view.time && localTime(Number(view.time), "long"));
  setHidden(within(root, "[data-outdated]"), !view.outdated);
  setText(within(root, '[data-fill="confirmations"]'), view.confirmations);
  const progress = /** @type {HTMLProgressElement} */ (within(root, '[data-fill="progress"]'));
  progress.value = view.progress;
  const transfer = within(root, '[data-fill="transfer"]');
  setHidden(transfer.parentElement, !view.txid);
  if (view.txid) {
    transfer.setAttribute("href", `/tx/${view.txid}`);
  }
  setHidden(within(root, "[data-twice]"), !view.twice);
  showMismatches(root, view.mismatches);
}

/** @type {(root: HTMLElement, mismatches: View["mismatches"]) => void} */
function showMismatches(root, mismatches) {
  const page = root.ownerDocument;
  const list = within(root, '[data-fill="mismatches"]');
  const shown = mismatches.map((each) => each.txid).join(" ");
  if (list.dataset.shown !== shown) {
    list.dataset.shown = shown;
    list.replaceChildren(
      ...mismatches.map((each) => {
        const sample = page.getElementById(each.less ? "mismatch-less" : "mismatch-more");
        const { content } = /** @type {HTMLTemplateElement} */ (sample);
        const item = /** @type {HTMLElement} */ (content.firstElementChild?.cloneNode(true));
        within(item, '[data-fill="coins"]').replaceChildren(...digitNodes(each.coins, page));
        within(item, '[data-fill="difference"]').replaceChildren(...digitNodes(each.difference, page));
        within(item, "a").setAttribute("href", `/tx/${each.txid}`);
        return item;
      }),
    );
  }
  setHidden(within(root, "[data-misses]"), mismatches.length === 0);
}

/** @type {(element: Element | null, hidden: boolean) => void} */
function setHidden(element, hidden) {
  const place = /** @type {HTMLElement | null} */ (element);
  if (place && place.hidden !== hidden) {
    place.hidden = hidden;
  }
}

/** @type {(element: Element, text: string) => void} */
function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** The node's answer to `path`; with `wait` only when the payment is not as `state` says, or after so many seconds.
 *
 * `signal` ends the question early. Gives the view, with the node's time in Unix milliseconds as `now`.
 * @type {(path: string, options: Waiting) => Promise<View & { now: number }>} */
async function ask(path, { wait, state, signal }) {
  const target = wait ? `${path}&wait=${wait}&state=${state}` : path;
  const answer = await fetch(target, question(signal, {}, "same-origin"));
  const body = /** @type {Verified} */ (objectIn(await textOf(answer)));
  if (answer.status === PRUNED) {
    throw new Pruned(body.pruneHeight);
  }
  if (!body.ok) {
    throw new Error(body.error);
  }
  return { ...viewOf(body.payment), now: Date.parse(answer.headers.get("date") ?? "") || Date.now() };
}

/** The seconds in a data attribute, or null.
 * @type {(text: string | undefined) => number | null} */
const secondsIn = (text) => (text === undefined ? null : Number(text));

/** Keep asking, slowly once the order is paid; the poller rests while nobody looks. Gives the poller.
 * @param {HTMLElement} root
 * @param {Parts} parts */
export function watch(root, { asked = ask, timers = globalThis, remembered = memory } = {}) {
  const page = root.ownerDocument;
  const trouble = within(root, "[data-trouble]");
  const until = Number(root.dataset.until ?? Infinity);
  const timing = { blockSeconds: secondsIn(root.dataset.blockSeconds), idleSeconds: secondsIn(root.dataset.idleSeconds) };
  // The newest block, and when it was made or, if it came later, when this page saw it.
  let moved = { tip: root.dataset.tip, at: Number(root.dataset.tipTime ?? 0) };
  let failures = 0;
  let left = Infinity;
  let latest = "";
  let told = root.dataset.state ?? "";
  const patience = new LongPoll(page);

  /** @type {() => Promise<boolean | number>} */
  async function once() {
    const longest = Math.min(LONGEST, Math.max(1, Math.ceil(left / 1000)));
    const view = await patience.ask(longest, async (waiting) => {
      try {
        return await asked(root.dataset.status ?? "", { ...waiting, state: told });
      } catch (problem) {
        if (problem instanceof Pruned) return problem;
        throw problem;
      }
    });
    if (view === null) return PAUSE;
    answered();
    if (view instanceof Pruned) {
      latest = "";
      patience.hurry();
      showUnknown(root, view.first);
      return SLOW;
    }
    const { now, ...shown } = view;
    const news = JSON.stringify(shown);
    const pause = news === latest ? PAUSE : 0;
    latest = news;
    told = view.told;
    left = until > now ? until - now : Infinity;
    if (shown.tip !== moved.tip) {
      moved = { tip: shown.tip, at: now };
    }
    const clock = { syncing: shown.outdated, time: now, tipTime: moved.at };
    show(root, {
      ...shown,
      fallen: hasFallen(shown),
      expired: shown.state === "unpaid" && now >= until,
      late: isLate(shown, now),
      moving: secondsPerBlock(clock, timing) !== null,
      left: blocksLeft(shown.missing, clock, timing),
      remaining: left,
    });
    if (shown.final) {
      patience.hurry();
      return SLOW;
    }
    // An answer that says nothing new may be one that something gives at once.
    return patience.isPlain ? false : pause;
  }

  /** Whether the payment was deeper before; while the node is behind, nobody knows.
   * @type {(view: View) => boolean} */
  function hasFallen({ state, outdated }) {
    const deepest = DEPTHS.indexOf(remembered.read().deepest);
    const depth = DEPTHS.indexOf(state);
    if (depth > deepest) {
      remembered.write({ deepest: state });
    }
    return depth < deepest && !outdated;
  }

  /** Whether the payment came after the order had expired; of one in a block, the time of its arrival is unknown.
   * @type {(view: View, now: number) => boolean} */
  function isLate({ state, time }, now) {
    if (state === "unpaid" || until === Infinity || remembered.read().inTime) return false;
    const late = root.dataset.inTime === undefined && (time ? Number(time) : now) >= until;
    if (!late) remembered.write({ inTime: true });
    return late;
  }

  function answered() {
    failures = 0;
    setHidden(trouble, true);
  }

  function failed() {
    failures += 1;
    setHidden(trouble, failures < PATIENCE);
  }

  const poller = new Poller(once, failed, page, timers);
  poller.ask();
  return poller;
}

/** Show when the order expires in the time of this place.
 * @type {(root: HTMLElement) => void} */
function showExpiry(root) {
  for (const shown of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll('[data-fill="until"]'))) {
    shown.title = shown.textContent ?? "";
    shown.textContent = localTime(Number(root.dataset.until), "long");
  }
}

const root = globalThis.document?.getElementById("payment");
if (root) {
  showExpiry(root);
  const print = within(root, "[data-print]");
  print.hidden = false;
  print.addEventListener("click", () => globalThis.print());
  for (const link of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("a[data-busy]:not([data-app])"))) {
    leadsOn(link);
  }
  for (const link of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("a[data-app]"))) {
    leadsToApp(link, () => setHidden(within(root, "[data-no-app]"), false));
  }
  watch(root);
}
