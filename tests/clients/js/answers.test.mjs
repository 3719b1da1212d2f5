// Bounds of the client to the byte, its sentences, and signals; test_hostile_node.py has the cases of all callers.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";

import * as pay from "../../../clients/javascript/src/index.js";

const SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const ORDER = { reference: "order-1", recipient: SHOP, amount: 100n, confirmations: 3 };
const MOST = 4 * 1024 * 1024;
const ACCOUNT = { address: SHOP, balance: "1", nonce: "0", pendingNonce: "0", pendingBalance: "1" };
const account = (more = {}) => JSON.stringify({ ok: true, account: { ...ACCOUNT, ...more } });
const json = { "content-type": "application/json" };

let answer;
let requests = [];
// Otherwise a busy computer closes a connection that it keeps just as the client uses it, which then asks again.
const server = createServer({ keepAliveTimeout: 600_000 }, (request, response) => {
  requests.push(request);
  response.on("error", () => {});
  answer(request, response);
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
after(() => {
  server.close();
  server.closeAllConnections();
});

/** A client of a server that answers so. */
function clientOf(given, options = {}) {
  [answer, requests] = [given, []];
  return new pay.Client(`http://127.0.0.1:${server.address().port}`, options);
}
const saying = (text, status = 200, headers = json) =>
  clientOf((_, response) => response.writeHead(status, headers).end(text));

/** Bytes of a body for as long as somebody reads them, so many at once; `sent` counts them. */
function endless(size, every = 0) {
  const told = { sent: 0 };
  const client = (options) =>
    clientOf((_, response) => {
      response.writeHead(200, json);
      const part = Buffer.alloc(size, " ");
      const more = () => {
        if (response.destroyed) return;
        told.sent += size;
        const ready = response.write(part);
        if (every) setTimeout(more, every);
        else if (ready) setImmediate(more);
        else response.once("drain", more);
      };
      more();
    }, options);
  return { told, client };
}

test("an answer has at most 4 MiB", async () => {
  const full = account().padEnd(MOST, " ");
  assert.equal((await saying(full).account(SHOP)).balance, "1");
  await assert.rejects(saying(`${full} `).account(SHOP), { name: "InvalidAnswer", message: /more than 4194304 bytes/ });
});

test("a refusal has at most 4 MiB, and its sentence is one", async () => {
  await assert.rejects(saying("x".repeat(MOST + 1), 400).account(SHOP), { name: "InvalidAnswer" });
  const error = `${"\u001b[2J\u202e\u2028"}${"x".repeat(100_000)}`;
  await assert.rejects(saying(JSON.stringify({ ok: false, error }), 400).account(SHOP), (refused) => {
    assert.equal(refused.name, "ApiError");
    assert.ok(refused.message.startsWith("\\u{1b}[2J\\u{202e}\\u{2028}xxx"));
    return refused.message.length < 1_100;
  });
});

test("a list of many pages ends at the timeout", { timeout: 20_000 }, async () => {
  const slow = clientOf(
    (_, response) => setTimeout(() => response.end(JSON.stringify({ ok: true, payments: [], next: `${requests.length}` })), 200),
    { timeout: 0.5 },
  );
  const began = performance.now();
  await assert.rejects(slow.payments(SHOP), pay.NodeUnreachable);
  assert.ok(performance.now() - began < 1_500);
});

test("a signal ends a call whose answer is on its way", { timeout: 10_000 }, async () => {
  const stop = new AbortController();
  const { client } = endless(1, 20);
  const asked = client({ timeout: 60 }).payment(ORDER, { signal: stop.signal });
  setTimeout(() => stop.abort(new Error("no longer")), 100);
  await assert.rejects(asked, /no longer/);
});
