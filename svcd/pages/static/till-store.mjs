// What this browser keeps for the till, in IndexedDB: how it is set up, and its orders.

import { Database } from "./database.mjs";
import { joined } from "./till-orders.mjs";

/** @import { Listed, Order } from "./till-orders.mjs" */
/**
 * @typedef {object} Settings
 * @property {string} name
 * @property {string} recipient
 * @property {string} prices as they were typed
 * @property {number} rule as in an order
 * @property {number} turn the hour at which a day begins
 * @property {boolean} sound
 */

const ORDERS = "orders";
const DAYS = "days";
const SETTINGS = "settings";
const CURRENT = "current";

/** The opened store; throws `no-storage`, as all that is done with it may.
 * @type {() => Promise<TillStore>} */
export async function openTillStore() {
  /** @type {(database: IDBDatabase) => void} */
  const make = (database) => {
    database.createObjectStore(ORDERS, { keyPath: ["till", "reference"] }).createIndex(DAYS, ["till", "day"]);
    database.createObjectStore(SETTINGS);
  };
  return new TillStore(await Database.open("svc-till", make));
}

/** From one day of a till to another, or to the last one: arrays come behind strings.
 * @type {(till: string, from: string, to?: string) => IDBKeyRange} */
const daysOf = (till, from, to) => IDBKeyRange.bound([till, from], [till, to ?? []]);

/** Every tab of this browser writes into it; what one tab has noted of an order stays when another writes it. */
export class TillStore {
  #database;

  /** @param {Database} database */
  constructor(database) {
    this.#database = database;
  }

  /** @type {() => Promise<Settings | null>} */
  settings() {
    return this.#database.read(SETTINGS, (objects) => objects.get(CURRENT));
  }

  /** @type {(settings: Settings) => Promise<void>} */
  keepSettings(settings) {
    return this.#database.write(SETTINGS, (objects) => objects.put(settings, CURRENT));
  }

  /** What of the payments of a till has been listed, or null.
   * @type {(till: string) => Promise<Listed | null>} */
  listed(till) {
    return this.#database.read(SETTINGS, (objects) => objects.get(till));
  }

  /** @type {(till: string, listed: Listed) => Promise<void>} */
  keepListed(till, listed) {
    return this.#database.write(SETTINGS, (objects) => objects.put(listed, till));
  }

  /** The orders of a till from one day to another, or from a day on.
   * @type {(till: string, from: string, to?: string) => Promise<Order[]>} */
  async orders(till, from, to) {
    return (await this.#database.read(ORDERS, (objects) => objects.index(DAYS).getAll(daysOf(till, from, to)))) ?? [];
  }

  /** The orders of a till that have one of these references.
   * @type {(till: string, references: string[]) => Promise<Order[]>} */
  async named(till, references) {
    const read = (/** @type {string} */ reference) =>
      this.#database.read(ORDERS, (objects) => objects.get([till, reference]));
    return (await Promise.all(references.map(read))).filter((each) => each !== null);
  }

  /** The days that have orders of a till.
   * @type {(till: string) => Promise<string[]>} */
  async days(till) {
    /** @type {string[]} */
    const days = [];
    let after = "";
    for (;;) {
      const range = IDBKeyRange.bound([till, after], [till, []], true);
      /** @type {IDBCursor | null} */
      const first = await this.#database.read(ORDERS, (objects) => objects.index(DAYS).openKeyCursor(range));
      if (first === null) return days;
      [, after] = /** @type {string[]} */ (first.key);
      days.push(after);
    }
  }

  /** Keep orders together with what is known of them already; gives them as they are kept.
   * @type {(orders: Order[]) => Promise<Order[]>} */
  async keep(orders) {
    /** @type {Order[]} */
    const kept = [];
    await this.#database.write(ORDERS, (objects) => {
      for (const order of orders) {
        const reading = objects.get([order.till, order.reference]);
        reading.onsuccess = () => {
          const whole = joined(reading.result, order);
          kept.push(whole);
          objects.put(whole);
        };
      }
    });
    return kept;
  }
}
