// The open orders of a shop in a folder of Node.js.

import { JournalError, StoreError } from "./errors.js";
import { FileJournal } from "./file-journal.js";
import { OrderIndex } from "./order-index.js";

/** Entries after which everything is written anew, and they are removed; and one more for so many orders, because these
 * are written, too. */
const FURTHER = 1000;
const ORDERS_PER_ENTRY = 10;
/** Events that have been told, of which the disk learns together. */
const TOLD_AT_ONCE = 100;
const ATTEMPTS = 10;

/** The orders, the events and the place in the feed that the entries of a journal describe. */
class State {
  place = null;
  orders = new OrderIndex();
  /** The bodies by number, in order. */
  events = new Map();
  /** Of the newest event. */
  number = 0;

  /** Whether an update can be written. */
  allows({ place }) {
    return place === undefined || place.before === this.place;
  }

  apply({ added = [], changed = [], removed, events = [], told = 0, place }) {
    if (place !== undefined) this.place = place.after;
    for (const row of added) if (!this.orders.has(row.reference)) this.orders.set(row);
    for (const row of changed) if (this.orders.has(row.reference)) this.orders.set(row);
    if (removed !== undefined) this.orders.delete(removed);
    for (const body of events) this.events.set(++this.number, body);
    for (const number of this.events.keys()) {
      if (number > told) break;
      this.events.delete(number);
    }
  }

  /** Everything, for one entry. */
  get whole() {
    const { place, number } = this;
    return { place, number, orders: [...this.orders.all()], events: [...this.events] };
  }

  static of({ place, number, orders, events }) {
    const state = new State();
    for (const row of orders) state.orders.set(row);
    return Object.assign(state, { place, number, events: new Map(events) });
  }
}

/** A store of open orders in a folder, which is made if it is missing; all of them are in memory, too.
 *
 * It is a journal of updates in small files, of which `FileJournal` lets only one program make each. From time to time
 * an entry has everything, and those before it are removed, the oldest first. Who has made an entry and finds that the
 * one before it was removed meanwhile takes the entry back, and reads everything again.
 */
export class FileOrders {
  #journal;
  #state = new State();
  /** Of the entry that was read or made last; 0 for none. */
  #sequence = 0;
  /** Of the entry that has everything; 0 before the first one. */
  #whole = 0;
  /** The number of the last event that was told, and how many the disk does not know of. */
  #told = { number: 0, unknown: 0 };
  /** The work that the next one has to wait for. */
  #last = Promise.resolve();

  #further;

  /** After `further` entries, everything is written anew. */
  constructor(folder, further = FURTHER) {
    this.#further = further;
    try {
      this.#journal = new FileJournal(folder, "open orders");
    } catch (error) {
      throw storeError(error);
    }
  }

  /** What `work` gives once the work before it is done, and the state is up to date. */
  #inTurn(work) {
    return this.#afterAll(async () => {
      await this.#update();
      return work();
    });
  }

  #afterAll(work) {
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done.catch((error) => {
      throw storeError(error);
    });
  }

  // Reading

  async #update() {
    if (this.#sequence > 0) {
      const entries = await this.#journal.read(this.#sequence);
      if (await this.#journal.has(this.#sequence)) return this.#take(entries);
    }
    await this.#readAll();
  }

  #take(entries) {
    for (const entry of entries) {
      const { whole, ...update } = this.#parsed(entry);
      this.#sequence++;
      if (whole !== undefined) this.#whole = this.#sequence;
      else this.#state.apply(update);
    }
  }

  #parsed(entry) {
    let parsed = null;
    try {
      parsed = JSON.parse(entry);
    } catch {
      // It is damaged.
    }
    if (typeof parsed !== "object" || parsed === null) throw this.#journal.damaged("an entry cannot be read");
    return parsed;
  }

  /** Read the newest entry that has everything, and those after it. */
  async #readAll() {
    for (let attempt = 1; ; attempt++) {
      const numbers = await this.#journal.numbers();
      let first = numbers.length;
      while (first > 1 && numbers[first - 2] === numbers[first - 1] - 1) first--;
      const least = numbers[first - 1] ?? 1;
      const before = least - 1;
      const entries = numbers.length === 0 ? [] : await this.#journal.read(before);
      const parsed = entries.map((entry) => this.#parsed(entry));
      const at = parsed.findLastIndex(({ whole }) => whole !== undefined);
      // Another program may be removing the entries that were listed.
      const isThere = entries.length === 0 || (await this.#journal.has(least));
      if (isThere && (at >= 0 || before === 0)) {
        this.#state = at < 0 ? new State() : State.of(parsed[at].whole);
        this.#whole = at < 0 ? 0 : before + at + 1;
        this.#sequence = before + at + 1;
        this.#take(entries.slice(at + 1));
        this.#state.apply({ told: this.#told.number });
        return;
      }
      if (attempt === ATTEMPTS) throw this.#journal.damaged("an entry is missing");
    }
  }

  async place() {
    return this.#inTurn(() => this.#state.place);
  }

  async orders(references) {
    return this.#inTurn(() => {
      const { orders } = this.#state;
      return references.filter((each) => orders.has(each)).map((each) => orders.get(each));
    });
  }

  async affected(wanted) {
    return this.#inTurn(() => this.#state.orders.affected(wanted));
  }

  async events(limit) {
    return this.#inTurn(() => [...firstOf(this.#state.events, limit)]);
  }

  // Writing

  async write({ told, ...update }) {
    return this.#afterAll(async () => {
      if (told !== undefined && told > this.#told.number) {
        this.#told = { number: told, unknown: this.#told.unknown + 1 };
        this.#state.apply({ told });
      }
      // A told event that the disk does not know of comes again after a kill, and not more of them than this.
      const { unknown } = this.#told;
      const isDue = unknown >= TOLD_AT_ONCE || (unknown > 0 && this.#state.events.size === 0);
      return Object.keys(update).length === 0 && !isDue ? true : this.#write(update);
    });
  }

  async #write(update) {
    const { number, unknown } = this.#told;
    for (;;) {
      await this.#update();
      if (!this.#state.allows(update)) return false;
      if (await this.#append({ ...update, ...(unknown > 0 && { told: number }) })) break;
    }
    this.#told.unknown = 0;
    const most = this.#further + this.#state.orders.size / ORDERS_PER_ENTRY;
    if (this.#sequence - this.#whole > most) await this.#writeAll();
    return true;
  }

  /** Make the next entry; false if another program was first. */
  async #append(entry) {
    const sequence = this.#sequence + 1;
    if (!(await this.#journal.append(sequence, JSON.stringify(entry)))) return false;
    if (!(await this.#follows(sequence))) {
      await this.#journal.remove(sequence);
      return false;
    }
    this.#sequence = sequence;
    if (entry.whole === undefined) this.#state.apply(entry);
    else this.#whole = sequence;
    return true;
  }

  /** Whether an entry follows one that is there: else this program did not know that others have removed it. */
  async #follows(sequence) {
    if (sequence > 1) return this.#journal.has(sequence - 1);
    const numbers = await this.#journal.numbers();
    return numbers.at(-1) === numbers.length;
  }

  async #writeAll() {
    if (!(await this.#append({ whole: this.#state.whole }))) return;
    for (const number of await this.#journal.numbers()) if (number < this.#whole) await this.#journal.remove(number);
  }
}

function* firstOf(items, count) {
  for (const each of items) {
    if (count-- <= 0) return;
    yield each;
  }
}

const storeError = (error) => (error instanceof JournalError ? new StoreError(error.message) : error);
