// What this browser keeps for the till, in IndexedDB: how it is set up, and its orders.

import { changed, noStorage, openDatabase, outcome } from "./database.mjs";
import { joined } from "./till-orders.mjs";

/** @import { Order } from "./till-orders.mjs" */
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
const SETTINGS = "settings";
const CURRENT = "current";

/** The opened store; throws `no-storage`, as all that is done with it may.
 * @type {() => Promise<TillStore>} */
export async function openTillStore() {
  try {
    /** @type {(database: IDBDatabase) => void} */
    const make = (database) => {
      database.createObjectStore(ORDERS, { keyPath: "reference" }).createIndex("till", "till");
      database.createObjectStore(SETTINGS);
    };
    return new TillStore(await openDatabase("svc-till", make));
  } catch (cause) {
    throw noStorage(cause);
  }
}

/** Every tab of this browser writes into it; what one tab has noted of an order stays when another writes it. */
export class TillStore {
  #database;

  /** @param {IDBDatabase} database */
  constructor(database) {
    this.#database = database;
  }

  /** @type {() => Promise<Settings | null>} */
  async settings() {
    return (await this.#read(SETTINGS, (objects) => objects.get(CURRENT))) ?? null;
  }

  /** @type {(settings: Settings) => Promise<void>} */
  keepSettings(settings) {
    return this.#write(SETTINGS, (objects) => objects.put(settings, CURRENT));
  }

  /** The height up to which the payments of a till have been listed, or null.
   * @type {(till: string) => Promise<bigint | null>} */
  async listed(till) {
    return (await this.#read(SETTINGS, (objects) => objects.get(till))) ?? null;
  }

  /** @type {(till: string, height: bigint) => Promise<void>} */
  keepListed(till, height) {
    return this.#write(SETTINGS, (objects) => objects.put(height, till));
  }

  /** @type {(till: string) => Promise<Order[]>} */
  orders(till) {
    return this.#read(ORDERS, (objects) => objects.index("till").getAll(till));
  }

  /** Keep orders together with what is known of them already; gives them as they are kept.
   * @type {(orders: Order[]) => Promise<Order[]>} */
  async keep(orders) {
    /** @type {Order[]} */
    const kept = [];
    await this.#write(ORDERS, (objects) => {
      for (const order of orders) {
        const reading = objects.get(order.reference);
        reading.onsuccess = () => {
          const whole = joined(reading.result, order);
          kept.push(whole);
          objects.put(whole);
        };
      }
    });
    return kept;
  }

  /** @template T
   * @param {string} name
   * @param {(objects: IDBObjectStore) => IDBRequest<T>} question
   * @returns {Promise<T>} */
  async #read(name, question) {
    try {
      return await outcome(question(this.#database.transaction(name).objectStore(name)));
    } catch (cause) {
      throw noStorage(cause);
    }
  }

  /** @type {(name: string, order: (objects: IDBObjectStore) => unknown) => Promise<void>} */
  async #write(name, order) {
    try {
      await changed(this.#database, name, order);
    } catch (cause) {
      throw noStorage(cause);
    }
  }
}
