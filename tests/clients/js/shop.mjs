// A shop that reads the feed of a chain in memory with `Orders`, for their tests: without a network.

import * as pay from "../../../clients/javascript/src/index.js";

import { SHOP } from "./shop-chain.mjs";

/** The plainest store, which also checks what it is asked. */
export class MemoryOrders {
  stored = null;
  rows = new Map();
  bodies = new Map();
  count = 0;
  writes = 0;

  async place() {
    return this.stored;
  }

  async orders(references) {
    return references.filter((each) => this.rows.has(each)).map((each) => this.rows.get(each));
  }

  async affected({ height, now, above, after, limit }) {
    const matters = ({ awaits, due, top }) =>
      (awaits !== null && awaits <= height) || (due !== null && due <= now) || (top !== null && top > above);
    const names = [...this.rows.keys()].sort().filter((each) => each > after && matters(this.rows.get(each)));
    return names.slice(0, limit).map((each) => this.rows.get(each));
  }

  async events(limit) {
    return [...this.bodies].slice(0, limit);
  }

  async write({ added = [], changed = [], removed, events = [], told = 0, place }) {
    if (place !== undefined && place.before !== this.stored) return false;
    this.writes++;
    if (place !== undefined) this.stored = place.after;
    for (const row of added) if (!this.rows.has(row.reference)) this.rows.set(row.reference, row);
    for (const row of changed) if (this.rows.has(row.reference)) this.rows.set(row.reference, row);
    this.rows.delete(removed);
    for (const body of events) this.bodies.set(++this.count, body);
    for (const number of this.bodies.keys()) if (number <= told) this.bodies.delete(number);
    return true;
  }
}

const query = (url) => Object.fromEntries(new URL(url).searchParams);

/** A client whose node answers each question for the feed as `answer` says: with a feed, or by throwing. */
export function clientOf(answer, options = {}) {
  const fetch = async (url, { signal }) => {
    const aborted = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const feed = await Promise.race([answer(query(url), new URL(url).pathname), aborted]);
    return feed instanceof Response ? feed : new Response(JSON.stringify({ ok: true, feed }));
  };
  return new pay.Client("http://node.example", { fetch, sleep: async () => {}, ...options });
}

const clocksOf = (chain) => ({ now: () => chain.now + chain.ahead, even: () => chain.now });

/** A shop that has only what it has stored once it is made anew. */
export class Shop {
  /** What was asked. */
  asked = [];
  pauses = [];
  /** Ends the wait of the shop's question. */
  #go = () => {};
  #next = null;
  #wake = null;

  constructor(chain, store, { feed = (asked) => chain.feed(asked), sinceHeight } = {}) {
    this.chain = chain;
    this.store = store;
    const answer = async ({ limit, sinceHeight, ...more }, path) => {
      if (path !== `/rpc/commerce/feed/${SHOP}`) throw new Error(path);
      const asked = { ...more, limit: Number(limit), sinceHeight: Number(sinceHeight) };
      this.asked.push(asked);
      if (Number(asked.minHeight ?? 0) > chain.height)
        return new Response(JSON.stringify({ ok: false, error: "behind" }), { status: 503 });
      const found = feed(asked);
      if (asked.wait === undefined || found.entries.length > 0 || found.next !== asked.after) return found;
      // There is nothing to tell until the wait is over.
      const wait = new Promise((resolve) => (this.#go = resolve));
      this.#wake?.();
      await wait;
      return feed(asked);
    };
    const sleep = async (seconds) => {
      this.pauses.push(seconds);
      if (!this.chain.synced) {
        const wait = new Promise((resolve) => (this.#go = resolve));
        this.#wake?.();
        await wait;
      }
    };
    this.client = clientOf(answer, { sleep, timeout: 3600 });
    this.orders = new pay.Orders(this.client, { recipient: SHOP, store, sinceHeight, ...clocksOf(chain) });
  }

  add(given, options) {
    return this.orders.add({ recipient: SHOP, ...given }, options);
  }

  /** The events until there is nothing more to tell, of which `heard` is told each at once; the wait of the last
   * question is over now. */
  async tell(heard = () => {}) {
    const idle = new Promise((resolve) => (this.#wake = () => resolve(null)));
    this.#go();
    this.changes ??= this.orders.changes();
    const told = [];
    for (;;) {
      this.#next ??= this.changes.next();
      const found = await Promise.race([this.#next, idle]);
      if (found === null) return told;
      this.#next = null;
      told.push(found.value);
      heard(found.value);
    }
  }
}

/** What the cases say of an event. */
export function toldOf({ event, payment, mismatch }, chain) {
  const { reference, state, confirmations, txid } = payment;
  const told = { event, reference, state, confirmations };
  if (txid !== undefined) told.transfer = chain.name(txid);
  if (mismatch === undefined) return told;
  const { kind, more } = mismatch;
  return { ...told, mismatch: { kind, transfer: chain.name(mismatch.txid), ...(more && { more }) } };
}

/** Numbers from 0 to 1 that follow from a seed (mulberry32). */
export function randomOf(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
