// What this browser keeps for the wallet, in IndexedDB: the keyfile (the seed is sealed in it) and signed payments.

import { Database } from "./database.mjs";
import { render } from "./keyfile.mjs";
import { haveSameSigned } from "./signed.mjs";

/** @import { Keyfile } from "./keyfile.mjs" */
/** @import { Payment } from "./paying.mjs" */

const NAME = "svc-wallet";
const KEYFILE = "keyfile";
/** Beside the keyfile, in the same objects. */
const GENESIS_HASH = "genesis-hash";
const PAYMENTS = "payments";

/** The opened store; throws `no-storage`, as all that is done with it may.
 * @type {(factory?: IDBFactory) => Promise<Store>} */
export async function openStore(factory) {
  /** @type {(database: IDBDatabase) => void} */
  const make = (database) => {
    database.createObjectStore(KEYFILE);
    database.createObjectStore(PAYMENTS, { keyPath: "id" });
  };
  return new Store(await Database.open(NAME, make, factory));
}

export class Store {
  #database;

  /** @param {Database} database */
  constructor(database) {
    this.#database = database;
  }

  /** The keyfile, or null.
   * @type {() => Promise<Keyfile | null>} */
  keyfile() {
    return this.#database.read(KEYFILE, (keyfiles) => keyfiles.get(KEYFILE));
  }

  /** Keep a keyfile, and never in place of another; says whether there was room for it.
   * @type {(keyfile: Keyfile) => Promise<boolean>} */
  async keepKeyfile(keyfile) {
    let kept = true;
    await this.#database.write(KEYFILE, (keyfiles) => {
      const counting = keyfiles.count(KEYFILE);
      counting.onsuccess = () => {
        kept = counting.result === 0;
        if (kept) keyfiles.put(keyfile, KEYFILE);
      };
    });
    return kept;
  }

  /** Keep a keyfile in place of `former`, unless another is kept by now; says whether it was.
   * @type {(former: Keyfile, keyfile: Keyfile) => Promise<boolean>} */
  async replaceKeyfile(former, keyfile) {
    let kept = false;
    await this.#database.write(KEYFILE, (keyfiles) => {
      const reading = keyfiles.get(KEYFILE);
      reading.onsuccess = () => {
        kept = reading.result !== undefined && render(reading.result) === render(former);
        if (kept) keyfiles.put(keyfile, KEYFILE);
      };
    });
    return kept;
  }

  /** The genesis hash that the person was given of the network, or null.
   * @type {() => Promise<string | null>} */
  genesisHash() {
    return this.#database.read(KEYFILE, (keyfiles) => keyfiles.get(GENESIS_HASH));
  }

  /** Keep a genesis hash in place of another.
   * @type {(hash: string) => Promise<void>} */
  keepGenesisHash(hash) {
    return this.#database.write(KEYFILE, (keyfiles) => keyfiles.put(hash, GENESIS_HASH));
  }

  /** The payment of an intent, or null.
   * @type {(id: string) => Promise<Payment | null>} */
  payment(id) {
    return this.#database.read(PAYMENTS, (payments) => payments.get(id));
  }

  /** All payments.
   * @type {() => Promise<Payment[]>} */
  payments() {
    return this.#database.read(PAYMENTS, (payments) => payments.getAll()).then((all) => all ?? []);
  }

  /** Keep a payment in place of what was signed for its intent before; it is on the disk when this is done.
   * @type {(payment: Payment) => Promise<void>} */
  keep(payment) {
    return this.#database.write(PAYMENTS, (payments) => payments.put(payment));
  }

  /** Keep what is new of a payment, unless its intent has been signed again meanwhile; gives the payment that is kept.
   * @type {(payment: Payment) => Promise<Payment>} */
  async renew(payment) {
    let kept = payment;
    await this.#database.write(PAYMENTS, (payments) => {
      const reading = payments.get(payment.id);
      reading.onsuccess = () => {
        if (reading.result && haveSameSigned(reading.result, payment)) payments.put(payment);
        else if (reading.result) kept = reading.result;
      };
    });
    return kept;
  }

  /** Forget the wallet and all its payments. */
  async clear() {
    await this.#database.write(KEYFILE, (keyfiles) => keyfiles.clear());
    await this.#database.write(PAYMENTS, (payments) => payments.clear());
    // The worker that checks the chain keeps its newest block there (light-worker.mjs).
    globalThis.indexedDB?.deleteDatabase("svc-chain");
  }
}
