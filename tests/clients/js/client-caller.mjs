// The calls of the client.

import * as pay from "../../../clients/javascript/src/index.js";
import * as light from "../../../clients/javascript/src/light.js";
import { argon2id } from "../../../svcd/pages/static/argon2.mjs";
import { given, serve } from "./caller.mjs";

const { url, token, timeout, order, transfer, watch, event, callback, seed } = given;
const client = new pay.Client(url, { token, timeout, retrySeconds: Infinity });
const key = await pay.Key.fromSeed(Uint8Array.from(Buffer.from(seed, "hex")));
const { recipient, amount, reference, confirmations } = order;

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
    verifyChain: () => light.verifyChain(client, pay.DEVNET, { argon2id }),
    provenBalance: () => light.provenBalance(client, recipient, { argon2id }),
    provenPayment: () => light.provenPayment(client, order, { argon2id }),
    cancel: () => client.cancel(watch),
  },
  (error) => error.constructor.name,
);
