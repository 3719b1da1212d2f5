// Open orders without webhooks, through the types of svc-pay: compiled by `tsc --strict`, then run against a devnet.
// On each line of standard input the test says what it has done; this program says on each line what it waits for.

import { createInterface } from "node:readline";
import { Client, DEVNET, Key, Orders } from "svc-pay";
import type { FeedPage, OrderStore, WatchEvent } from "svc-pay";
import { FileOrders } from "svc-pay/file-orders";

const [url = "", seed = ""] = process.argv.slice(2);
const shop = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const node = new Client(url);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Ask the test for something, and wait until it is done. */
async function ask(what: string): Promise<void> {
  console.log(what);
  await lines.next();
}

const { order } = await node.paymentRequest({ recipient: shop, amount: 500_000_000n, confirmations: 2 });
const store: OrderStore = new FileOrders("orders");
const orders = new Orders(node, { recipient: shop, store, sinceHeight: order.sinceHeight });
await orders.add(order, { payUntil: Date.now() + 600_000 });
let changes = orders.changes();

/** The next event of the order, in words. */
async function next(): Promise<string> {
  const { value }: { value: WatchEvent } = await changes.next();
  return `${value.event} ${value.payment.state} ${value.payment.confirmations}`;
}

const faucet = await Key.fromSeed(new Uint8Array(Buffer.from(seed, "hex")));
const transfer = await node.sign(faucet, DEVNET, { recipient: shop, amount: order.amount, reference: order.reference });
await node.broadcast(transfer);
console.log(await next());
await ask("mine 1");
console.log(await next());
await ask("mine 1");
console.log(await next());
await ask("reorganise 2");
console.log(await next());
// A program that starts again learns the last event again.
changes = new Orders(node, { recipient: shop, store: new FileOrders("orders") }).changes();
console.log(await next());
await ask("mine 1");
console.log(await next());
await ask("mine 1");
console.log(await next());

const page: FeedPage = await node.feed(shop, { sinceHeight: order.sinceHeight, limit: 1000 });
for (const entry of page.entries)
  if (entry.type === "payment" && entry.txid === transfer.txid)
    console.log(entry.amountSvc, entry.reference === order.reference);
lines.return?.(undefined);
process.stdin.destroy();

// What the types do not allow.
// @ts-expect-error a path is no store
void (() => new Orders(node, { recipient: shop, store: "orders" }));
// @ts-expect-error a number may have been rounded
void (() => node.feed(shop, { sinceHeight: 5 }));
