// The rates of the JavaScript client; tests/clients/test_rates.py asks the same of the other one.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";

import { InvalidInput, orderAmount, RateRefused, RateSource } from "../../../clients/javascript/src/index.js";

const cases = JSON.parse(readFileSync(new URL("../rates.json", import.meta.url), "utf8"));
const now = 1_000;

/** A function that returns these, one after the other, and then throws. */
const readFrom = (...told) => async () => {
  if (told.length === 0) throw new RangeError("the exchange is closed");
  return told.shift();
};

/** A `fetch` that gives these answers, and keeps what it was called with. */
function answering(...answers) {
  const calls = [];
  const fetch = async (...given) => {
    calls.push(given);
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer instanceof Response ? answer : new Response(answer);
  };
  return { fetch, calls };
}

test("amounts are rounded up and kept with their rate", async () => {
  for (const { price, rate: coin, amount } of cases.amounts) {
    const rate = await RateSource.fixed("EUR", coin).rate({ now });
    if (amount === null) {
      assert.throws(() => orderAmount(price, "EUR", rate), /is more than 90071992\.54740991 coins/);
      continue;
    }
    const kept = { amount, price, currency: "EUR", rate: coin, rateAt: "1000000" };
    assert.deepEqual(orderAmount(price, "EUR", rate), kept);
  }
});

test("what is no decimal above 0 is neither a rate nor a price", async () => {
  const rate = await RateSource.fixed("EUR", "0.5").rate();
  const others = [0, -0, -1, 0.5, 2 ** 53, true, null, undefined, NaN, Infinity, {}, ["1"], [], 1n];
  for (const price of [...cases.refused, ...others]) {
    const name = typeof price === "bigint" ? "bigint" : JSON.stringify(price);
    assert.throws(() => RateSource.fixed("EUR", price), RateRefused, name);
    await assert.rejects(RateSource.function("EUR", () => price, { maxAge: 60 }).rate(), RateRefused, name);
    assert.throws(() => orderAmount(price, "EUR", rate), InvalidInput, name);
    assert.throws(() => orderAmount("1", "EUR", { ...rate, price }), RateRefused, name);
  }
});

test("currencies and ages are checked", async () => {
  const rate = await RateSource.fixed("EUR", 1).rate();
  assert.throws(() => orderAmount("1", "USD", rate), /the price is in USD and the rate in EUR/);
  for (const currency of ["euro", "", null]) assert.throws(() => RateSource.fixed(currency, 1), InvalidInput);
  for (const maxAge of [undefined, null, 0, -1, 1.5, "60", NaN, Infinity]) {
    assert.throws(() => RateSource.function("EUR", () => 1, { maxAge }), /maxAge must be a whole number of seconds/);
    assert.throws(() => RateSource.url("EUR", "https://rates.example/", "EUR", { maxAge }), /maxAge must be/);
  }
  assert.throws(() => RateSource.function("EUR", () => 1), InvalidInput);
  // As if a rate had been stored without its time, or without its age.
  for (const lost of [{ at: undefined }, { at: "1000000" }, { maxAge: undefined }, { maxAge: "60" }])
    assert.throws(() => orderAmount("1", "EUR", { ...rate, ...lost }), RateRefused);
});

test("a rate is used until it is stale and then read again", async () => {
  const source = RateSource.function("EUR", readFrom("2", "3"), { maxAge: 60 });
  const rate = await source.rate({ now });
  assert.deepEqual(rate, { currency: "EUR", price: "2", at: 1_000_000, maxAge: 60 });
  assert.equal(await source.rate({ now: 1_060 }), rate);
  assert.equal(orderAmount("1", "EUR", rate, { now: 1_060 }).rateAt, "1000000");
  const late = /the rate of EUR is 61 seconds old, and may be used for 60/;
  assert.throws(() => orderAmount("1", "EUR", rate, { now: 1_060.001 }), late);
  assert.throws(() => orderAmount("1", "EUR", rate), RateRefused);
  assert.equal((await source.rate({ now: 1_060.001 })).price, "3");
});

test("a refused rate is never replaced by an earlier one", async () => {
  const source = RateSource.function("EUR", readFrom("2", ["3", 1_000_000], "0", ["4", 1_061_000]), { maxAge: 60 });
  assert.equal((await source.rate({ now })).price, "2");
  await assert.rejects(source.rate({ now: 1_061 }), /is 61 seconds old/);
  await assert.rejects(source.rate({ now: 1_061 }), /"0" is not a rate/);
  assert.equal((await source.rate({ now: 1_061 })).at, 1_061_000);
  await assert.rejects(source.rate({ now: 1_122 }), /the exchange is closed/);
});

test("a rate of the future is refused, and a clock that was set back does not stop the shop", async () => {
  const ahead = RateSource.function("EUR", () => ["2", 1_060_001], { maxAge: 60 });
  await assert.rejects(ahead.rate({ now }), /the time of the rate of EUR is in the future/);
  const source = RateSource.function("EUR", readFrom("2", "3", ["4", 1.5]), { maxAge: 3600 });
  const rate = await source.rate({ now });
  assert.throws(() => orderAmount("1", "EUR", rate, { now: 939 }), /in the future/);
  assert.equal((await source.rate({ now: 939 })).price, "3");
  await assert.rejects(source.rate({ now: 800 }), /must be an integer in Unix milliseconds/);
});

test("URLs", () => {
  for (const url of cases.allowedUrls) RateSource.url("EUR", url, "EUR", { maxAge: 60 });
  for (const url of [...cases.refusedUrls, "https://rates.example:port/", undefined]) {
    const refused = (error) => error instanceof InvalidInput && !error.message.includes("secret");
    assert.throws(() => RateSource.url("EUR", url, "EUR", { maxAge: 60 }), refused, url);
  }
});

test("the rate at a path", async () => {
  for (const { body, path, rate } of cases.json) {
    const { fetch } = answering(body);
    const asked = RateSource.url("EUR", "https://rates.example/", path, { maxAge: 60, fetch }).rate();
    if (rate === null) await assert.rejects(asked, RateRefused, body);
    else assert.equal((await asked).price, rate);
  }
});

test("a server is asked once while its rate may be used, past every cache, and never again after a failure", async () => {
  const opaque = Object.defineProperties(Response.error(), { type: { value: "opaqueredirect" } });
  const failures = [
    [new Response("", { status: 302, headers: { location: "https://elsewhere.example/" } }), /is a redirect/],
    [opaque, /is a redirect/],
    [new Response("", { status: 500 }), /answers with status 500/],
    [new Response(null, { status: 204 }), /answers with status 204/],
    [new TypeError("fetch failed", { cause: new Error("no route") }), /does not answer: no route/],
    [" ".repeat(1 << 20) + "1", /has more than 1048576 bytes/],
    ["[".repeat(100_000), /is not JSON/],
    ['{"EUR": "\\u001b[2J\\u202e"}', /is not a decimal above 0: "\\u\{1b\}\[2J\\u\{202e\}"$/],
  ];
  for (const [failure, sentence] of failures) {
    const { fetch, calls } = answering('{"EUR": 0.5}', failure);
    const source = RateSource.url("EUR", "https://rates.example/?key=secret", "EUR", { maxAge: 60, fetch });
    const rate = await source.rate({ now });
    assert.equal(await source.rate({ now: 1_060 }), rate);
    await assert.rejects(source.rate({ now: 1_061 }), (error) => {
      return error instanceof RateRefused && sentence.test(error.message) && !error.message.includes("secret");
    });
    assert.equal(calls.length, 2);
    const [url, { signal, headers, ...options }] = calls[1];
    assert.equal(url, "https://rates.example/?key=secret");
    assert.deepEqual(options, { cache: "no-store", credentials: "omit", redirect: "manual" });
    assert.deepEqual(headers, { "accept-encoding": "identity", accept: "application/json" });
    assert.ok(signal instanceof AbortSignal);
  }
});

test("a real server, and one that does not answer", { timeout: 60_000 }, async () => {
  const requests = [];
  const server = createServer((request, response) => {
    requests.push(request.url);
    if (request.url === "/moved") response.writeHead(302, { location: "/rates" }).end();
    else if (request.url === "/rates") response.end('{"EUR": 0.5}');
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address();
  const source = (path) => RateSource.url("EUR", `http://127.0.0.1:${port}${path}`, "EUR", { maxAge: 60 });
  try {
    assert.equal((await source("/rates").rate()).price, "0.5");
    await assert.rejects(source("/moved").rate(), /is a redirect, which no call follows/);
    await assert.rejects(source("/silent").rate(), /does not answer: .*timeout/);
    assert.deepEqual(requests, ["/rates", "/moved", "/silent"]);
  } finally {
    server.close();
    server.closeAllConnections();
  }
  await assert.rejects(source("/rates").rate(), RateRefused);
});
