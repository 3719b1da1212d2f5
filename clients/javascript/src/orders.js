// The open orders of a shop, and what happens to them, from one feed: the steps of order-book.js.

import { checkNames, checkOrder, integer, must, networkFor } from "./chain.js";
import { questionsOf } from "./client.js";
import { StoreError, SvcPayError } from "./errors.js";
import * as book from "./order-book.js";
import { isWatchEvent, parseEvent } from "./webhooks.js";

/** Orders that are evaluated in one transaction. */
const AT_ONCE = 1000;
const EVENTS = 100;
const LONGEST_WAIT = 30;
/** Seconds of a wait while payments gain confirmations: a block that pays the shop nothing does not end it. */
const SHORT_WAIT = 5;
const UNSYNCED_PAUSE = 2;
/** Seconds between answers without an entry that may not have reached the tip. */
const PAUSE = 1;
const ANOTHER = "another program reads the feed for this store of open orders";
/** From so many milliseconds on a change of the clock beside one that runs evenly is a jump. */
const JUMP = 30_000;
/** Milliseconds for which a clock that has jumped must run evenly before an order expires by it. */
const STEADY = 300_000;
/** A height that no transfer is above. */
const NEVER = Number.MAX_SAFE_INTEGER;

/** The open orders to one recipient, and what happens to them.
 *
 * Everything is in the store; nothing is registered with the node. Any number of programs may add and remove orders;
 * one of them iterates over `changes`.
 */
export class Orders {
  #node;
  #recipient;
  #store;
  #network;
  #first;
  #clock;
  #evenClock;
  /** By how many milliseconds the clock was ahead of the even one at the last look. */
  #lead;
  /** When the clock has last jumped, by the even one; null if it has been steady since. */
  #jumped = null;

  /** `recipient` is the address of the shop, on the network of `node`. The feed is read from `sinceHeight` on if the
   * `store` is new; `now` gives the Unix milliseconds, and `even` milliseconds that nobody sets.
   */
  constructor(node, options) {
    checkNames(options, "recipient", "store", "sinceHeight", "now", "even");
    const { recipient, store, sinceHeight = "0", now = Date.now, even = () => performance.now() } = options;
    this.#network = networkFor(recipient, node.network);
    this.#node = node;
    this.#recipient = recipient;
    this.#store = store;
    this.#first = book.firstPlace(recipient, this.#network.genesisHash, Number(integer(sinceHeight, "sinceHeight")));
    this.#clock = now;
    this.#evenClock = even;
    this.#lead = now() - even();
  }

  // Orders

  /** Follow an order, before its buyer learns the reference: what the feed has told before is not told again.
   *
   * `payUntil` is the buyer's deadline in Unix milliseconds: until then the payment must have been seen, in the mempool
   * or in a block. The same order again changes nothing; other terms under its reference reject with InvalidInput, and
   * a store that has the feed of another address with StoreError.
   */
  async add(order, { payUntil = null } = {}) {
    const checked = checkOrder(order, this.#network);
    const other = `these are the orders of ${this.#recipient}; that of ${checked.recipient} is none of them`;
    must(checked.recipient === this.#recipient, other);
    const isTime = payUntil === null || (Number.isSafeInteger(payUntil) && payUntil >= 0);
    must(isTime, "payUntil is a time in Unix milliseconds, an integer");
    // Nothing would tell of an order in the store of another feed.
    await this.#place();
    const added = book.newOrder(checked, payUntil, this.#now());
    await this.#store.write({ added: [book.rowOf(added)] });
    const found = (await this.#open([checked.reference])).get(checked.reference);
    const same = found === undefined || book.termsIn(found) === book.termsIn(added);
    must(same, `there is another open order with the reference ${checked.reference}`);
  }

  /** Follow an order no longer: nothing of it happens any more, not even that it is paid twice or undone. */
  async remove(reference) {
    await this.#store.write({ removed: reference });
  }

  #now() {
    return Math.floor(this.#clock());
  }

  /** Look at the clocks: whether an order may expire. One wrong second must not be final. */
  #isSteady() {
    const even = this.#evenClock();
    const lead = this.#clock() - even;
    if (Math.abs(lead - this.#lead) >= JUMP) this.#jumped = even;
    else if (this.#jumped !== null && even - this.#jumped >= STEADY) this.#jumped = null;
    this.#lead = lead;
    return this.#jumped === null;
  }

  /** The place that is stored, as text, too; rejects with StoreError if it is that of another feed. */
  async #place() {
    const text = await this.#store.place();
    const place = text === null ? this.#first : book.placeOf(text);
    const { recipient, genesis } = this.#first;
    const other = `the store has the open orders of ${place.recipient}, not those of ${recipient}`;
    if (place.recipient !== recipient || place.genesis !== genesis) throw new StoreError(other);
    return { text, place };
  }

  /** Those of the store with these references. */
  async #open(references) {
    return read(await this.#store.orders([...references].sort()));
  }

  /** Those of the store to be looked at, behind the reference `after`. */
  async #affected({ height = -1, now = -1, above = NEVER, limit = AT_ONCE, after = "" }) {
    return read(await this.#store.affected({ height, now, above, after, limit }));
  }

  // Events

  /** The events of all open orders, as webhooks tell them, without end; waits for the next one.
   *
   * An event is removed from the store when the next one is asked for: after an interruption the last one comes again,
   * with the same id, or several do. An error ends the iteration and loses nothing: iterate again after a while.
   * `signal` ends it, too.
   */
  async *changes({ signal } = {}) {
    const { text, place } = await this.#place();
    /** `wait` is that of the next question, 0 until all that is known has been evaluated. With `empty` the last answer
     * had no entry, and may not have reached the tip. */
    const reading = { place, text, wait: 0, empty: false };
    for (;;) {
      signal?.throwIfAborted();
      const events = await this.#store.events(EVENTS);
      if (events.length === 0) await this.#ask(reading, signal);
      for (const [number, body] of events) {
        yield eventIn(body);
        await this.#store.write({ told: number });
        signal?.throwIfAborted();
      }
    }
  }

  /** Ask the feed once, and store what the answer says, with the events that follow. */
  async #ask(reading, signal) {
    const { place, wait } = reading;
    const { after, since, tip } = place;
    // A node that is behind would rewind to its own tip.
    const from = after === null ? {} : { after, minHeight: BigInt(tip) };
    const asked = { limit: book.PAGE, sinceHeight: BigInt(since), wait, signal, ...from };
    const answer = book.answerOf(await this.#node.feed(this.#recipient, asked), place);
    if ((await this.#store.place()) !== reading.text) throw new StoreError(ANOTHER);
    if (!answer.synced) {
      // Whatever it says, the chain may not be the network's.
      reading.wait = 0;
      await this.#pause(UNSYNCED_PAUSE, signal);
    } else if (book.reachesTip(place, answer)) {
      reading.empty = false;
      await this.#evaluate(reading, answer);
    } else await this.#record(reading, answer, signal);
  }

  #pause(seconds, signal) {
    return questionsOf(this.#node).sleep(seconds, signal);
  }

  async #record(reading, answer, signal) {
    const { place } = reading;
    const { rewind, payments } = answer;
    const orders = new Map();
    for (let after = ""; rewind !== null; ) {
      const some = await this.#affected({ above: rewind, after });
      for (const [reference, order] of some) orders.set(reference, order);
      if (some.size < AT_ONCE) break;
      after = greatest(some);
    }
    const references = new Set(payments.map(({ reference }) => reference));
    const unknown = [...references].filter((each) => each !== null && !orders.has(each));
    for (const [reference, order] of await this.#open(unknown)) orders.set(reference, order);
    await this.#write(reading, book.moved(place, answer), book.record(orders, answer).map(book.rowOf), []);
    const was = reading.empty;
    reading.empty = rewind === null && payments.length === 0;
    reading.wait = 0;
    if (was && reading.empty) await this.#pause(PAUSE, signal);
  }

  /** Evaluate the orders that the answer affects, in several transactions; with the last one the place moves.
   *
   * Until then the same is evaluated again after a kill, and says nothing again.
   */
  async #evaluate(reading, answer) {
    const { place } = reading;
    const moment = book.momentOf(answer, this.#now(), this.#isSteady());
    const { height } = answer.tip;
    const now = moment.mayEnd ? moment.now : -1;
    await this.#evaluateSome(reading, reading.place, await this.#open(moment.waiting.keys()), moment);
    let some;
    for (let after = ""; ; after = greatest(some)) {
      some = await this.#affected({ height, now, after });
      if (some.size < AT_ONCE) break;
      await this.#evaluateSome(reading, reading.place, some, moment);
    }
    await this.#evaluateSome(reading, book.moved(place, answer), some, moment);
    // Payments that gain confirmations, and deadlines that are near.
    const soon = await this.#affected({ height: height + 1, now: now + 1000 * LONGEST_WAIT, limit: 1 });
    reading.wait = soon.size > 0 ? SHORT_WAIT : LONGEST_WAIT;
  }

  async #evaluateSome(reading, place, orders, moment) {
    const shop = { recipient: this.#recipient, network: this.#network };
    const [changed, events] = [[], []];
    for (const before of orders.values()) {
      const found = book.evaluate(before, moment, shop);
      const row = book.rowOf(found.order);
      if (!same(row, book.rowOf(before))) changed.push(row);
      events.push(...found.events);
    }
    await this.#write(reading, place, changed, await Promise.all(events.map(book.completed)));
  }

  async #write(reading, place, changed, events) {
    const before = reading.place;
    const moved = JSON.stringify({ ...place, step: before.step }) !== JSON.stringify(before);
    if (!moved && changed.length === 0 && events.length === 0) return;
    const next = { ...place, step: before.step + 1 };
    const text = JSON.stringify(next);
    const written = await this.#store.write({ changed, events, place: { before: reading.text, after: text } });
    if (!written) throw new StoreError(ANOTHER);
    reading.place = next;
    reading.text = text;
  }
}

const read = (rows) => new Map(rows.map((row) => [row.reference, book.orderOf(row)]));
const same = (one, other) => one.text === other.text && one.awaits === other.awaits && one.due === other.due;
const greatest = (orders) => [...orders.keys()].at(-1);

/** The event in a text of a store; throws StoreError. */
function eventIn(body) {
  try {
    const event = parseEvent(body);
    if (isWatchEvent(event)) return event;
  } catch (error) {
    if (!(error instanceof SvcPayError)) throw error;
  }
  throw new StoreError("the store of open orders is damaged: an event cannot be read");
}
