// The till: what it is made of, which view is shown, and what it asks the node.
//
// The part of the address behind # names the view: #sale, #orders, #setup or #order=<reference>, so that reload and back
// do what people expect. The node keeps nothing for a till, and is asked as by anybody else.

import { blockSeconds } from "./built-in.mjs";
import { LongPoll, PAUSE } from "./long-poll.mjs";
import { Node, odd } from "./node.mjs";
import { Poller } from "./polling.mjs";
import { Problem } from "./problem.mjs";
import { localTime, message } from "./texts.mjs";
import { asBefore, chainOf, dayOf, isOpen, missingBelow, ordersNamed, rangesOf, reconciled, standingOf, tillOf, transferIn, verified } from "./till-orders.mjs";
import { enterBooks, wireBooks } from "./till-books.mjs";
import { enterOrder, showOrder, wireOrder } from "./till-order.mjs";
import { enterSale, showOpen, wireSale } from "./till-sale.mjs";
import { enterSetup, wireSetup } from "./till-setup.mjs";
import { ring } from "./till-sound.mjs";
import { openTillStore } from "./till-store.mjs";
import { byId, show, tell, write } from "./wallet-dom.mjs";

/** @import { Network } from "./networks.mjs" */
/** @import { Listed, Listing, Order, Transfer } from "./till-orders.mjs" */
/** @import { Settings, TillStore } from "./till-store.mjs" */

/** Seconds that the node may wait with the answer for a change. */
const WAIT = 10;
/** Milliseconds between questions that do not wait, and about an order that is paid. */
const EVERY = 2_000;
const SLOW = 10_000;
/** Milliseconds between lists of all payments: while there are open orders, and else. */
const OFTEN = 5_000;
const SELDOM = 30_000;
/** How long ago the payments were made for which a device that is new here looks, in seconds. */
const LOOK_BACK = 7 * 86_400;
/** Transfers of a page, pages of a list, and transfers in the mempool that a list has at most. */
const PAGE = 100;
const PAGES = 30;
const WAITING = 100;

/** A till whose store and network are there. */
export class Till {
  /** How it is set up, or null.
   * @type {Settings | null} */
  settings = null;
  /** By reference: those of the last days, those of the day that the books show, the one that is open, and what the last
   * list names.
   * @type {Map<string, Order>} */
  orders = new Map();
  /** The days that have orders.
   * @type {string[]} */
  days = [];
  /** The day that was chosen in the books; "" for today. */
  day = "";
  /** How often orders were kept. */
  #writes = 0;
  /** Of the newest block of which the node has told. */
  height = 0n;
  /** Whether the node says that it knows the newest blocks. */
  synced = true;
  /** Whether all payments of the last days are known. */
  complete = true;
  /** Which of the orders have rung. */
  #rung = new Set();
  /** @type {Poller | null} */
  #following = null;
  /** @type {LongPoll | null} */
  #patience = null;
  #lists;
  /** When the node has last told its height, on a clock that only goes forward. */
  #heard = 0;
  /** Since when the node has not answered, in Unix milliseconds.
   * @type {number | null} */
  #silent = null;

  /** @param {{ node: Node, store: TillStore, network: Network }} parts */
  constructor({ node, store, network }) {
    this.node = node;
    this.store = store;
    this.network = network;
    this.#lists = new Poller(
      () => this.#list(),
      (problem) => this.#failed(problem),
    );
  }

  /** What is common to the orders of this till; "" before it is set up.
   * @returns {string} */
  get key() {
    return this.settings === null ? "" : tillOf(this.network.genesisHash, this.settings.recipient, this.settings.name);
  }

  /** Begin with the orders that are kept, and ask from now on. */
  async begin() {
    await this.#read(await this.store.settings());
    wireSetup(this);
    wireSale(this);
    wireOrder(this);
    wireBooks(this);
    addEventListener("hashchange", () => this.#turn().catch((problem) => this.#failed(problem)));
    addEventListener("offline", () => this.#failed(new Problem("node-unreachable", message("wallet-script.node-silent"))));
    this.view();
    this.#lists.ask();
  }

  /** Be the till of these settings from now on.
   * @type {(settings: Settings) => Promise<void>} */
  async setUp(settings) {
    await this.store.keepSettings(settings);
    await this.#read(settings);
    this.#lists.ask();
  }

  /** @type {(settings: Settings | null) => Promise<void>} */
  async #read(settings) {
    this.settings = settings;
    this.day = "";
    await this.#load();
    this.#hush();
  }

  /** Show the books of a day.
   * @type {(day: string) => Promise<void>} */
  async openDay(day) {
    this.day = day;
    await this.#load();
    this.#hush();
    this.shown();
  }

  /** Read the orders that are to be in memory, and those with these references; another tab may have written them.
   * @type {(references?: string[]) => Promise<void>} */
  async #load(references = []) {
    const { key, settings } = this;
    if (settings === null) return;
    const from = dayOf(Date.now() - 1000 * LOOK_BACK, settings.turn);
    let [orders, days, writes] = [this.orders, this.days, -1];
    // What is kept meanwhile may not be in what was read.
    while (writes !== this.#writes) {
      writes = this.#writes;
      const recent = await this.store.orders(key, from);
      const older = this.day !== "" && this.day < from ? await this.store.orders(key, this.day, this.day) : [];
      orders = byReference([...recent, ...older]);
      const others = [...references, this.#asked().reference].filter((each) => each !== "" && !orders.has(each));
      for (const order of await this.store.named(key, others)) orders.set(order.reference, order);
      days = await this.store.days(key);
    }
    if (key === this.key) [this.orders, this.days] = [orders, days];
  }

  /** Let no order ring that is paid already. */
  #hush() {
    for (const order of this.orders.values()) if (standingOf(order, this.height).state === "paid") this.#rung.add(order.reference);
  }

  /** Show the view that the address names now; what it names may be an order of long ago. */
  async #turn() {
    const { reference } = this.#asked();
    if (reference !== "" && !this.orders.has(reference)) await this.#load();
    this.view();
  }

  /** The view and the order that the address names. */
  #asked() {
    const [name, reference = ""] = location.hash.slice(1).split("=");
    return { name, reference };
  }

  /** Keep orders that have changed, and show them.
   * @type {(orders: Order[]) => Promise<void>} */
  async keep(orders) {
    const { key } = this;
    const kept = await this.store.keep(orders);
    this.#writes += 1;
    for (const order of kept) if (key === this.key) this.orders.set(order.reference, order);
    this.shown();
  }

  /** Show what is known now, in whatever view is open; an order that has just been paid rings. */
  shown() {
    const orders = [...this.orders.values()];
    for (const order of orders) {
      const { state } = standingOf(order, this.height);
      if (state !== "paid" || !this.synced || this.#rung.has(order.reference)) continue;
      this.#rung.add(order.reference);
      if (this.settings?.sound && order.made !== null && order.done === null) ring();
    }
    const urgent = orders.filter((order) => standingOf(order, this.height).urgent).length;
    const badge = byId("urgent");
    badge.hidden = urgent === 0;
    write(badge, `${urgent}`);
    badge.setAttribute("aria-label", message("till-script.urgent", { count: urgent }));
    showOpen(this);
    showOrder(this);
    enterBooks(this);
  }

  /** Show the view that the address names. */
  view() {
    const { name, reference } = this.#asked();
    this.#following?.end();
    this.#following = null;
    this.#patience?.end();
    this.#patience = null;
    byId("navigation").hidden = this.settings === null;
    const order = this.orders.get(reference);
    if (this.settings === null || name === "setup") enterSetup(this);
    else if (name === "order" && order) this.#open(order);
    else if (name === "orders") this.#books();
    else enterSale(this, this.settings);
    for (const link of byId("navigation").querySelectorAll("a")) {
      if (link.hash === `#${document.body.dataset.view}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.shown();
  }

  #books() {
    show("orders");
    this.#lists.ask();
  }

  /** @type {(order: Order) => void} */
  #open(order) {
    enterOrder(this, order);
    if (order.amount === null) return;
    const { reference } = order;
    const patience = new LongPoll();
    this.#patience = patience;
    let told = "";
    this.#following = new Poller(
      async () => {
        const found = await patience.ask(WAIT, (waiting) => this.#verify(reference, told, waiting));
        if (found === null) return PAUSE;
        told = found.state;
        if (!found.paid) return patience.isPlain ? EVERY : PAUSE;
        patience.hurry();
        return SLOW;
      },
      (problem) => this.#failed(problem),
    );
    this.#following.ask();
  }

  /** Ask how an order stands; the node may wait so many seconds for another state than `told`.
   * @type {(reference: string, told: string, waiting: { wait: number, signal: AbortSignal }) => Promise<{ state: string, paid: boolean }>} */
  async #verify(reference, told, { wait, signal }) {
    const order = /** @type {Order} */ (this.orders.get(reference));
    const { recipient } = /** @type {Settings} */ (this.settings);
    const terms = { recipient, reference, amount: order.amount ?? 0n, confirmations: Math.max(order.rule, 1) };
    const waiting = wait === 0 ? "" : `&wait=${wait}&state=${told}`;
    const patient = new Node((path, options) => fetch(`${path}${waiting}`, { ...options, signal }));
    const answer = await patient.payment(terms);
    const before = this.orders.get(reference) ?? order;
    const found = verified(before, answer.told ?? {}, Date.now());
    if (found === null) throw odd();
    this.#answered(found.height, found.synced);
    if (chainOf(found.order) === chainOf(before)) this.shown();
    else await this.keep([found.order]);
    if (found.more) this.#lists.ask();
    return { state: answer.state, paid: standingOf(found.order, found.height).state === "paid" };
  }

  /** List all payments, and note what they say of the orders; gives the milliseconds until the next time.
   * @type {() => Promise<number>} */
  async #list() {
    const { settings, key } = this;
    if (settings === null) return SELDOM;
    const before = await this.store.listed(key);
    const { listing, missing } = await this.#listing(settings.recipient, before);
    await this.#load(ordersNamed(listing.transfers));
    // Another till has been set up meanwhile.
    if (key !== this.key) return PAUSE;
    const own = { till: key, rule: settings.rule, turn: settings.turn, now: Date.now() };
    const found = reconciled([...this.orders.values()], listing, own);
    const first = before?.first ?? listing.height;
    const changed = found.map((order) => asBefore(order, first, before === null));
    if (changed.length > 0) await this.keep(changed);
    else this.shown();
    if (listing.whole) await this.store.keepListed(key, { first, height: listing.height, missingBelow: missing });
    const open = [...this.orders.values()].some((order) => isOpen(order, this.height, own.now));
    return open ? OFTEN : SELDOM;
  }

  /** All transfers of the recipient since the last list, or in the last days, and more of those that are missing; with the
   * height below which some still are.
   * @type {(recipient: string, before: Listed | null) => Promise<{ listing: Listing, missing: bigint | null }>} */
  async #listing(recipient, before) {
    const begun = Date.now();
    const { height, first, tip, syncing } = await this.node.view();
    const days = BigInt(Math.ceil(LOOK_BACK / blockSeconds(this.network)));
    const ranges = rangesOf(before, height, first, days);
    const waiting = await this.node.waiting(recipient);
    const newer = await this.#pages(recipient, null, ranges.since);
    const { below, oldest } = ranges;
    const isAsked = below !== null && newer.since === ranges.since;
    const older = isAsked ? await this.#pages(recipient, `${below}-0`, oldest) : { transfers: [], since: oldest };
    const asked = performance.now();
    const after = await this.node.view();
    const missing = missingBelow(ranges, newer.since, older.since);
    this.complete = missing === null;
    this.#answered(after.height, !after.syncing && !syncing, asked);
    const transfers = [...waiting.map(read), ...newer.transfers, ...older.transfers];
    const whole = after.tip === tip && waiting.length < WAITING;
    return { listing: { transfers, since: newer.since, height, begun, whole }, missing };
  }

  /** The transfers of some pages, the newest first, and from which height on these are all: `since` or, if they are too
   * many, a later one.
   * @type {(recipient: string, next: string | null, since: bigint) => Promise<{ transfers: Transfer[], since: bigint }>} */
  async #pages(recipient, next, since) {
    /** @type {Transfer[]} */
    const transfers = [];
    let from = since;
    for (let page = 1; ; page += 1) {
      const part = await this.node.transfers(recipient, next, PAGE);
      transfers.push(...part.transfers.map(read));
      const last = transfers.at(-1)?.height ?? null;
      ({ next } = part);
      if (next === null || (last !== null && last < since)) break;
      if (page < PAGES) continue;
      if (last === null) throw odd();
      from = last + 1n;
      break;
    }
    return { transfers: transfers.filter(({ height }) => height !== null && height >= from), since: from };
  }

  /** Note what the node has told; of two answers, the one that came last may be the older one.
   * @type {(height: bigint, synced: boolean, asked?: number) => void} */
  #answered(height, synced, asked = Infinity) {
    if (asked > this.#heard) this.height = height;
    this.#heard = performance.now();
    this.synced = synced;
    this.#silent = null;
    byId("line").hidden = true;
    byId("behind").hidden = synced;
  }

  /** @type {(problem: unknown) => void} */
  #failed(problem) {
    if (!navigator.onLine || !(problem instanceof Problem) || problem.code === "node-unreachable") {
      this.#silent ??= Date.now();
    }
    if (this.#silent === null || !(problem instanceof Problem)) return tell(byId("line"), problem);
    const since = message("till-script.line", { time: localTime(this.#silent) });
    const isSilent = problem.message === message("wallet-script.node-silent");
    tell(byId("line"), new Problem(problem.code, isSilent ? since : `${problem.message} ${since}`));
  }
}

/** @type {(orders: Order[]) => Map<string, Order>} */
const byReference = (orders) => new Map(orders.map((order) => [order.reference, order]));

/** @type {(record: Parameters<typeof transferIn>[0]) => Transfer} */
function read(record) {
  const transfer = transferIn(record);
  if (transfer === null) throw odd();
  return transfer;
}

/** Open the store, and wait for the node. */
async function start() {
  const node = new Node((path, options) => fetch(path, options));
  let store;
  try {
    store = await openTillStore();
  } catch (problem) {
    tell(byId("line"), problem);
    return;
  }
  const poller = new Poller(
    async () => {
      const network = await node.network();
      tell(byId("line"), null);
      write(byId("network"), network.name);
      byId("network").hidden = false;
      await new Till({ node, store, network }).begin();
      return true;
    },
    (problem) => tell(byId("line"), problem),
  );
  poller.ask();
}

if (globalThis.document) start();
