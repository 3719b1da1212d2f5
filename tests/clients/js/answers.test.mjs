// What the client does not take of a node, or of whoever stands before it: real answers of a hostile server.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";

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
  const { told, client } = endless(65_536);
  await assert.rejects(client().account(SHOP), { name: "InvalidAnswer", message: /more than 4194304 bytes/ });
  assert.ok(told.sent < 4 * MOST, `${told.sent} bytes`);
  assert.equal(requests.length, 1);
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

test("no compressed answer is asked for, and none is taken", async () => {
  for (const coding of ["gzip", "deflate", "br", "x-gzip", "gzip, gzip"]) {
    const client = saying(gzipSync(account()), 200, { ...json, "content-encoding": coding });
    await assert.rejects(client.account(SHOP), { name: "InvalidAnswer", message: /is compressed/ }, coding);
    assert.equal(requests[0].headers["accept-encoding"], "identity");
  }
  await saying(account(), 200, { ...json, "content-encoding": "identity" }).account(SHOP);
});

test("a call ends at its timeout, whatever comes until then", { timeout: 20_000 }, async () => {
  const busy = { error: "busy" };
  const ways = [
    () => endless(1, 20).client({ timeout: 0.5 }),
    () => clientOf(() => {}, { timeout: 0.5 }),
    () =>
      clientOf(
        ({ socket }) => {
          const more = () => socket.destroyed || (socket.write("a: b\r\n"), setTimeout(more, 20));
          socket.write("HTTP/1.1 200 OK\r\n");
          more();
        },
        { timeout: 0.5 },
      ),
    () =>
      clientOf((_, response) => setTimeout(() => response.writeHead(503, json).end(JSON.stringify(busy)), 200), {
        timeout: 0.5,
        retrySeconds: 600,
      }),
    () =>
      clientOf((_, response) => response.writeHead(429, { ...json, "retry-after": "31536000" }).end("{}"), {
        timeout: 0.5,
        retrySeconds: Infinity,
      }),
  ];
  for (const way of ways) {
    const client = way();
    const began = performance.now();
    await assert.rejects(client.account(SHOP), pay.SvcPayError);
    const took = performance.now() - began;
    assert.ok(took < 1_500, `${way} took ${took} ms`);
  }
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

test("no redirect is followed", async () => {
  for (const status of [301, 302, 303, 307, 308]) {
    const client = saying("", status, { location: "/elsewhere" });
    await assert.rejects(client.account(SHOP), { name: "InvalidAnswer", message: /redirect/ });
    assert.equal(requests.length, 1);
  }
});

test("a list that begins again, or does not end, is refused", async () => {
  const page = (next) => JSON.stringify({ ok: true, payments: [], next });
  const lists = [
    [() => page("a"), /begins again/, 2],
    [(at) => page(["a", "b"][at % 2]), /begins again/, 3],
    [(at) => page(`${at}`), /more than 1000 pages/, 1001],
    [(at) => page(`${at}`).padEnd(MOST, " "), /characters/, 17],
  ];
  for (const [each, message, most] of lists) {
    const client = clientOf((_, response) => response.end(each(requests.length)));
    await assert.rejects(client.payments(SHOP), { name: "InvalidAnswer", message });
    assert.ok(requests.length <= most, `${requests.length} pages`);
  }
});

test("JSON that programs read in different ways is refused", async () => {
  const nested = "[".repeat(100_000) + "]".repeat(100_000);
  const odd = {
    "a key twice": account().replace('"balance"', '"balance":"9","balance"'),
    "a key twice, escaped": account().replace('"balance"', '"\\u0062alance":"9","balance"'),
    "an answer twice": account().replace('"ok"', '"account":{},"ok"'),
    nesting: account({ more: 0 }).replace('"more":0', `"more":${nested}`),
    "a huge integer": account({ balance: "9007199254740992" }),
    "a huger integer": account({ balance: "9".repeat(5_000) }),
    "a number for a string": account({ balance: 1 }),
    "a list": "[]",
    nothing: "",
    "no JSON": "<html>",
    "half of it": account().slice(0, -1),
    "no UTF-8": Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(account())]),
  };
  for (const [name, text] of Object.entries(odd))
    await assert.rejects(saying(text).account(SHOP), { name: "InvalidAnswer" }, name);
});
