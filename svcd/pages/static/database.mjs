// What a page keeps in this browser, in IndexedDB.

import { Problem } from "./problem.mjs";
import { message } from "./texts.mjs";

/** The result of a request; rejects with its error.
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>} */
export const outcome = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/** The opened database, in which `make` has made what is in it.
 * @type {(name: string, make: (database: IDBDatabase) => void, factory?: IDBFactory) => Promise<IDBDatabase>} */
export async function openDatabase(name, make, factory = globalThis.indexedDB) {
  const opening = factory.open(name, 1);
  opening.onupgradeneeded = () => make(opening.result);
  const database = await outcome(opening);
  // Another tab that brings a newer version must not wait for this one.
  database.onversionchange = () => database.close();
  return database;
}

/** What `work` gives; throws `no-storage`, whatever IndexedDB throws.
 * @template T
 * @param {() => Promise<T>} work */
async function told(work) {
  try {
    return await work();
  } catch (cause) {
    const name = cause instanceof Error ? cause.name : String(cause);
    throw new Problem("no-storage", message("wallet-script.no-storage", { cause: name }));
  }
}

/** The database of a page; all that is done with it may throw `no-storage`. */
export class Database {
  #database;

  /** @param {IDBDatabase} database */
  constructor(database) {
    this.#database = database;
  }

  /** @type {(...opened: Parameters<typeof openDatabase>) => Promise<Database>} */
  static open(...opened) {
    return told(async () => new Database(await openDatabase(...opened)));
  }

  /** What is there, or null.
   * @template T
   * @param {string} name
   * @param {(objects: IDBObjectStore) => IDBRequest<T>} question */
  read(name, question) {
    return told(async () => (await outcome(question(this.#database.transaction(name).objectStore(name)))) ?? null);
  }

  /** Do what `order` orders in one transaction; it is on the disk when this is done.
   * @type {(name: string, order: (objects: IDBObjectStore) => unknown) => Promise<void>} */
  write(name, order) {
    return told(async () => {
      const transaction = this.#database.transaction(name, "readwrite", { durability: "strict" });
      const done = new Promise((resolve, reject) => {
        transaction.oncomplete = () => resolve(undefined);
        transaction.onabort = () => reject(transaction.error);
      });
      order(transaction.objectStore(name));
      await done;
    });
  }
}
