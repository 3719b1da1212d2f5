// The calls of the client.

import * as pay from "../../../clients/javascript/src/index.js";
import { given, serve } from "./caller.mjs";

const { url, token, timeout, order, transfer, watch, event, callback, seed } = given;
const client = new pay.Client(url, { token, timeout, retrySeconds: Infinity });
const key = await pay.Key.fromSeed(Uint8Array.from(Buffer.from(seed, "hex")));
const { recipient, amount, reference, confirmations } = order;

await serve(
  {
    paymentRequest: () => client.paymentRequest({ recipient, amount, reference, confirmations, label: "Tea" }),
    payment: () => client.payment(order),
    waitFor: () => client.waitFor(order, { state: "pending", timeout }),
    payments: () => client.payments(recipient, { reference, amount }),
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
    cancel: () => client.cancel(watch),
  },
  (error) => error.constructor.name,
);
