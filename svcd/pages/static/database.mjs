// What a page keeps in this browser, in IndexedDB.

import { Problem } from "./problem.mjs";
import { message } from "./texts.mjs";

/** The fault of which people are told, whatever IndexedDB throws.
 * @type {(cause: unknown) => Problem} */
export function noStorage(cause) {
  const name = cause instanceof Error ? cause.name : String(cause);
  return new Problem("no-storage", message("wallet-script.no-storage", { cause: name }));
}

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

/** Do what `order` orders in one transaction; it is on the disk when this is done.
 * @type {(database: IDBDatabase, name: string, order: (objects: IDBObjectStore) => unknown) => Promise<void>} */
export async function changed(database, name, order) {
  const transaction = database.transaction(name, "readwrite", { durability: "strict" });
  const done = new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(undefined);
    transaction.onabort = () => reject(transaction.error);
  });
  order(transaction.objectStore(name));
  await done;
}
