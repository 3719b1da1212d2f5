// An order with a watch, through the types of svc-pay: compiled by `tsc --strict`, then run against a devnet.
// On each line of standard input the test says what it has done; this program says on each line what it waits for.

import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";
import { createInterface } from "node:readline";
import { ApiError, Client, DEVNET, ImpossibleAmount, isSettled, isWatchEvent, Key, orderAmount, Payouts, RateSource, Webhook, formatAmount } from "svc-pay";
import type { Event, Journal, Order, Payment, Payout, Quote, WatchEvent } from "svc-pay";
import { FileJournal } from "svc-pay/file-journal";
import { checkPaymentProof } from "svc-pay/light";

const [url = "", token = "", secret = "", seed = ""] = process.argv.slice(2);
const shop = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const node = new Client(url, { token });
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Ask the test for something, and wait until it is done. */
async function ask(what: string): Promise<void> {
  console.log(what);
  await lines.next();
}

function must(truth: boolean, what: string): asserts truth {
  if (!truth) throw new Error(what);
}

// Of a watch, an event tells by its name what it has.
function told(event: WatchEvent): string {
  switch (event.event) {
    case "payment.mismatched":
      return `${event.mismatch.kind} ${formatAmount(event.mismatch.amount)}`;
    case "node.alarm":
      return event.alarm.sentence;
    default:
      return `${event.event} ${event.payment.state} ${event.payment.confirmations}`;
  }
}

const webhook = new Webhook([secret, "an-older-secret-of-thirty-two-characters"]);
const events: Event[] = [];
const arrived = new Map<number, () => void>();
const server = createServer((request, response) => {
  buffer(request)
    .then((body) => webhook.verify(body, request.headers))
    .then((event) => {
      response.writeHead(200).end();
      arrived.get(events.push(event))?.();
    })
    .catch(() => response.writeHead(401).end());
});
const arrival = (count: number) =>
  events.length >= count ? Promise.resolve() : new Promise<void>((resolve) => void arrived.set(count, resolve));

await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
const address = server.address();
must(typeof address === "object" && address !== null, "no port");
const callback = `http://127.0.0.1:${address.port}/paid`;

const test = await node.testCallback(callback);
must(test.status === 200 && events[0]?.event === "webhook.test", "the test of the callback");
const forged = await fetch(callback, { method: "POST", body: "{}" });
must(forged.status === 401, "a forged callback");

const rates = RateSource.function("EUR", async () => ["0.50", Date.now()], { maxAge: 60 });
const quote: Quote = orderAmount("2.50", rates.currency, await rates.rate());
must(quote.amount === "500000000" && quote.price === "2.50" && quote.rate === "0.50", "the amount of the order");
const { order } = await node.paymentRequest({ recipient: shop, amount: quote.amount, confirmations: 2 });
const stored: Order = JSON.parse(JSON.stringify(order));
const wanted = { events: ["payment.confirmed", "payment.reorged"] } as const;
const watch = await node.register(stored, callback, wanted);
must((await node.register(stored, callback, wanted)).existing === true, "the same registration again");

const poor = await Key.fromSeed(new Uint8Array(32));
const dear = await node.sign(poor, DEVNET, { recipient: shop, amount: 1n }).catch((error: unknown) => error);
must(dear instanceof ImpossibleAmount && dear.possible === null, "an account without coins");
const faucet = await Key.fromSeed(new Uint8Array(Buffer.from(seed, "hex")));
const transfer = await node.sign(faucet, DEVNET, { recipient: shop, amount: order.amount, reference: order.reference });
must((await node.broadcast(transfer)) === "accepted", "the broadcast");
must((await node.broadcast(transfer)) === "known", "the broadcast again");

const waiting: Promise<Payment> = node.waitFor(stored, { timeout: 60 });
await ask("mine 2");
const payment = await waiting;
must(isSettled(payment) && payment.txid === transfer.txid, "the payment");
const [received] = await node.payments(shop, { reference: order.reference, amount: order.amount });
must(received?.txid === transfer.txid && received.mismatch === null, "the list of payments");

const journal: Journal = new FileJournal("payouts");
const payouts = new Payouts(node, journal, faucet, DEVNET, { confirmations: 2 });
const due = { recipient: shop, amount: 500_000_000n, reference: "refund-1" };
const refund: Payout = await payouts.pay("refund-1", due);
must(refund.state === "waiting" && refund.problem === null, "the refund");
must((await payouts.pay("refund-1", { ...due, amount: "500000000" })).txid === refund.txid, "the same refund");

const tip = payment.tip?.hash ?? "";
// hash-wasm is not installed here; the test of proofs checks the work.
const argon2id = async (): Promise<Uint8Array> => new Uint8Array(32);
const proven = await checkPaymentProof(await node.proof(stored), stored, { argon2id, tip });
must(proven.txid === transfer.txid && proven.confirmations === 2, "the proof");

await arrival(2);
await ask("reorganise 2");
await arrival(3);
console.log(events.filter(isWatchEvent).map(told).join(", "));

const [, confirmed] = events;
must(confirmed !== undefined, "the event");
while ((await node.watch(watch.id)).events?.some((each) => each.deliveredAt === null))
  await new Promise((r) => setTimeout(r, 20));
must((await node.redeliver(watch.id, confirmed.id)).id === confirmed.id, "the delivery again");
await arrival(4);
must((await node.cancel(watch.id)).ending === "cancelled", "the cancellation");
const ofOrder = await node.watches({ reference: "another" });
must(ofOrder.watches.length === 0, "the list of another order's watches");
const said = (await node.watch(watch.id)).events?.[1]?.content;
must(said?.payment.txid === transfer.txid && said.tip.hash !== said.payment.blockHash, "the content of an event");
const page = await node.watches({ host: "127.0.0.1", limit: 1 });
must(page.watches[0]?.id === watch.id && page.next === watch.id, "the list of watches");
must((await node.watches({ after: page.next })).next === null, "the end of the list");
const stranger = new Client(url, { token: "x".repeat(40) });
const refused = await stranger.watch(watch.id).catch((error: unknown) => error);
must(refused instanceof ApiError && refused.status === 401, "another token");
console.log(refused.message);
server.close();
lines.return?.(undefined);
process.stdin.destroy();

// What the types do not allow.
// @ts-expect-error a path is no journal
void (() => new Payouts(node, "payouts", faucet, DEVNET));
// @ts-expect-error a number may have been rounded
void (() => node.paymentRequest({ recipient: shop, amount: 5 }));
// @ts-expect-error an order has an amount
void (() => node.payment({ reference: "order-1", recipient: shop }));
// @ts-expect-error text was decoded, and may differ from what was signed
void (() => webhook.verify("{}", {}));
