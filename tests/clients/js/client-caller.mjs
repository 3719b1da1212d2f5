// The calls of the client.

import * as pay from "../../../clients/javascript/src/index.js";
import * as light from "../../../clients/javascript/src/light.js";
import { argon2id } from "../../../svcd/pages/static/argon2.mjs";
import { given, serve } from "./caller.mjs";
import { MemoryOrders } from "./shop.mjs";

const { url, token, timeout, order, paid, transfer, watch, event, callback, seed } = given;
const client = new pay.Client(url, { token, timeout, retrySeconds: Infinity });
const key = await pay.Key.fromSeed(Uint8Array.from(Buffer.from(seed, "hex")));
const { recipient, amount, reference, confirmations } = order;

/** A store of open orders in memory for the only event of a shop, which gives up soon if nothing is told. */
class FewQuestions extends MemoryOrders {
  #left = 5;

  async events(limit) {
    if (--this.#left === 0) throw new NothingTold();
    return super.events(limit);
  }
}

/** The answers of the feed, which were taken, have no payment of the order. */
class NothingTold extends Error {}
/** An event that no right answer leads to. */
class Invented extends Error {}
/** A place in the feed behind a payment that is not stored. */
class Lost extends Error {}

/** Read the feed with a new store until it tells the event of the shop. */
async function firstEvent() {
  const store = new FewQuestions();
  const orders = new pay.Orders(client, { recipient, store });
  await orders.add(order);
  let event;
  try {
    ({ value: event } = await orders.changes().next());
  } catch (error) {
    if (store.bodies.size > 0) throw new Invented();
    const taken = error instanceof NothingTold || store.stored === null;
    if (!taken && !store.rows.get(reference).text.includes(paid)) throw new Lost();
    throw error;
  }
  const { payment } = event;
  const told = [event.event, payment.reference, payment.txid, payment.amount].join();
  if (told !== ["payment.confirmed", reference, paid, amount].join()) throw new Invented(told);
}

await serve(
  {
    paymentRequest: () => client.paymentRequest({ recipient, amount, reference, confirmations, label: "Tea" }),
    payment: () => client.payment(order),
    waitFor: () => client.waitFor(order, { state: "pending", timeout: Math.min(timeout, 0.5) }),
    payments: () => client.payments(recipient, { reference, amount, sinceHeight: 1n }),
    proof: () => client.proof(order),
    blockHash: () => client.blockHash(1n),
    register: () => client.register(order, callback),
    watch: () => client.watch(watch),
    watches: () => client.watches({ reference }),
    redeliver: () => client.redeliver(watch, event),
    testCallback: () => client.testCallback(callback),
    account: () => client.account(recipient),
    sign: () => client.sign(key, pay.DEVNET, { recipient, amount }),
    broadcast: () => client.broadcast(transfer),
    orders: firstEvent,
    verifyChain: () => light.verifyChain(client, pay.DEVNET, { argon2id }),
    provenBalance: () => light.provenBalance(client, recipient, { argon2id }),
    provenPayment: () => light.provenPayment(client, order, { argon2id }),
    cancel: () => client.cancel(watch),
  },
  (error) => error.constructor.name,
);
