import assert from "node:assert/strict";
import { test } from "node:test";

import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { isLink, parseUri, returnUrlInSearch, returnUrlOf, untilInSearch, uriInSearch, uriInText } from "../../../svcd/pages/static/uri.mjs";
import { codeOf, problemOf, vectors } from "./vectors.mjs";

const { valid, invalid } = vectors("payment_uri");
const { devnet, mainnet } = NETWORKS;
const ADDRESS = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const URI = `svc:${ADDRESS}?amount=25&ref=order-1042&confirmations=12`;

for (const { name, network, uri, request } of valid) {
  test(`read: ${name}`, () => {
    const { amount, ...rest } = parseUri(uri, NETWORKS[network]);
    assert.deepEqual({ ...rest, amountBaseUnits: amount.toString() }, request);
  });
}

for (const { name, network, uri } of invalid) {
  test(`refused: ${name}`, async () => assert.ok(await codeOf(() => parseUri(uri, NETWORKS[network]))));
}

const CODES = [
  ["bitcoin:1abc", "scheme"],
  ["", "scheme"],
  [`svc://${ADDRESS}?amount=25&ref=A`, "address"],
  [`${URI}&label=%`, "encoding"],
  [`${URI}&label=%ff`, "encoding"],
  [`${URI}#top`, "encoding"],
  [`${URI} `, "encoding"],
  [`${URI}&Label=x`, "encoding"],
  [`${URI}&memo=${"x".repeat(2048)}`, "too-long"],
  [`${URI}&amount=26`, "duplicate"],
  [`${URI}&req-expires=1`, "unsupported"],
  [URI.replace("qcc", "qcd"), "address"],
  [URI.replace("=25", "=2.5e1"), "amount"],
  [URI.replace("=25", "=0.000000001"), "amount"],
  [URI.replace("amount=25&", ""), "amount"],
  [URI.replace("order-1042", "order/1042"), "reference"],
  [URI.replace("&ref=order-1042", ""), "reference"],
  [`svc:${ADDRESS}`, "reference"],
  [URI.replace("=12", "=1001"), "confirmations"],
  [`${URI}&label=`, "label"],
  [`${URI}&label=%E2%80%AE`, "label"],
];

for (const [uri, code] of CODES) {
  test(`${code}: ${uri.slice(0, 90)}`, async () => assert.equal(await codeOf(() => parseUri(uri, devnet)), code));
}

test("an address of another network is named", async () => {
  const { code, sentence } = await problemOf(() => parseUri(URI, mainnet));
  assert.equal(code, "network");
  assert.match(sentence, /belongs to devnet, and the node is on mainnet/);
});

test("an error names what it is about", async () => {
  assert.match((await problemOf(() => parseUri(`${URI}&req-expires=1`, devnet))).sentence, /“req-expires”/);
  assert.match((await problemOf(() => parseUri(`${URI}&ref=B`, devnet))).sentence, /“ref”/);
});

test("an amount may be left to the person who pays", () => {
  const asked = parseUri(URI.replace("amount=25&", ""), devnet, { amountMayBeMissing: true });
  assert.deepEqual([asked.amount, asked.reference], [null, "order-1042"]);
});

test("a bad amount is refused even where it may be left out", async () => {
  const work = () => parseUri(URI.replace("=25", "="), devnet, { amountMayBeMissing: true });
  assert.equal(await codeOf(work), "amount");
});

for (const { name, network, uri, request } of valid) {
  test(`from the page's address, decoded once: ${name}`, () => {
    const read = uriInSearch(`?pay=${encodeURIComponent(uri)}`, NETWORKS[network]);
    assert.equal(read, uri);
    assert.equal(parseUri(read, NETWORKS[network]).label, request.label);
  });
}

test("the schemes that a browser or a camera may hand over", () => {
  for (const scheme of ["svc:", "SVC:", "web+svc:", "WEB+SVC:", "svcd:", "SVCD:"]) {
    const search = `?pay=${encodeURIComponent(URI.replace("svc:", scheme))}`;
    assert.equal(uriInSearch(search, devnet), URI);
  }
  assert.equal(uriInSearch("?pay=svcd%3Ax", mainnet), "svcd:x");
});

test("a page without a payment link", () => {
  assert.equal(uriInSearch("", devnet), null);
  assert.equal(uriInSearch("?utm=1", devnet), null);
});

test("a plus is a plus and no blank", () => {
  const search = `?pay=${encodeURIComponent(`${URI}&label=`)}1+1`;
  assert.equal(parseUri(uriInSearch(search, devnet), devnet).label, "1+1");
});

test("two links, and links that are not encoded as a whole", async () => {
  const once = `pay=${encodeURIComponent(URI)}`;
  assert.equal(await codeOf(() => uriInSearch(`?${once}&${once}`, devnet)), "duplicate");
  assert.equal(await codeOf(() => uriInSearch(`?pay=${URI}`, devnet)), "encoding");
  assert.equal(await codeOf(() => uriInSearch(`?${once}&amount=1`, devnet)), "encoding");
  assert.equal(await codeOf(() => uriInSearch("?pay=%", devnet)), "encoding");
  assert.equal(await codeOf(() => uriInSearch("?pay=%ff", devnet)), "encoding");
});

test("the way back to the shop, with its host, as the checkout takes it", async () => {
  const url = "https://shop.example:8443/thanks?order=1&x=%22#paid";
  assert.equal(returnUrlInSearch(`?pay=x&returnUrl=${encodeURIComponent(url)}`), url);
  assert.deepEqual(returnUrlOf(url), { url, host: "shop.example:8443" });
  assert.equal(returnUrlInSearch("?pay=x"), null);
  const odd = ["http://shop.example/", "https://a@b.example/", "https://Shop.example/", "javascript:alert(1)", "https:///x"];
  for (const each of [...odd, `https://shop.example/${"x".repeat(1004)}`, "https://shop.example/ x"]) {
    assert.equal(returnUrlOf(each), null, each);
    assert.equal(await codeOf(() => returnUrlInSearch(`?returnUrl=${encodeURIComponent(each)}`)), "encoding");
  }
  assert.equal(await codeOf(() => returnUrlInSearch("?returnUrl=%zz")), "encoding");
  const twice = encodeURIComponent(url);
  assert.equal(await codeOf(() => returnUrlInSearch(`?pay=x&returnUrl=${twice}&returnUrl=${twice}`)), "duplicate");
});

test("the end of the order, as the checkout takes it", async () => {
  assert.deepEqual(["?pay=x&until=12000", "?until=0", "?pay=x"].map(untilInSearch), [12_000, 0, null]);
  for (const odd of ["", "01", "-1", "1e3", "1".repeat(16), "1&until=1"])
    assert.equal(await codeOf(() => untilInSearch(`?pay=x&until=${odd}`)), "encoding", odd);
});

test("a link that was pasted or scanned, by itself or in the address of a wallet page", async () => {
  const page = `https://node.example/wallet/?pay=${encodeURIComponent(URI)}`;
  const shop = "https://shop.example/";
  const alone = { uri: URI, returnUrl: null, until: null };
  assert.deepEqual(uriInText(URI.replace("svc:", "web+SVC:"), devnet), alone);
  assert.deepEqual(uriInText(`${page}#home`, devnet), alone);
  assert.deepEqual(uriInText(page.replace("?", "#"), devnet), alone);
  assert.deepEqual(uriInText(page.replace("?", "#home&") + "&until=12000", devnet), { ...alone, until: 12_000 });
  assert.equal(await codeOf(() => uriInText(`${page}#pay=x`, devnet)), "duplicate");
  assert.deepEqual(uriInText(`${page}&returnUrl=${encodeURIComponent(shop)}`, devnet), { ...alone, returnUrl: shop });
  assert.deepEqual(uriInText(`${page}&until=12000`, devnet), { ...alone, until: 12_000 });
  assert.equal(await codeOf(() => uriInText("https://node.example/pay/?reference=A", devnet)), "scheme");
  assert.deepEqual(["svc:x", "WEB+SVC:x", "svcd:x", "https://x", "svcd1qx", "svc1qx"].map(isLink), [true, true, true, true, false, false]);
});
