import assert from "node:assert/strict";
import { test } from "node:test";

import { parseAmount, typedAmount } from "../../../svcd/pages/static/amounts.mjs";
import { coins, inCoins } from "../../../svcd/pages/static/digits.mjs";
import { formatAmount, wireNumber } from "../../../svcd/pages/static/units.mjs";
import { codeOf, vectors } from "./vectors.mjs";

const READ = [
  ["25", 2_500_000_000n],
  ["0.5", 50_000_000n],
  ["0.29", 29_000_000n],
  ["0.00000001", 1n],
  ["25.00", 2_500_000_000n],
  ["90071992.54740991", 9_007_199_254_740_991n],
];

for (const [text, units] of READ) {
  test(`${text} coins are ${units} base units`, () => assert.equal(parseAmount(text), units));
}

const REFUSED = ["", "0", "0.0", "-1", "+1", "1e2", "1,5", ".5", "5.", "01", "0x10", " 1", "1 ", "１", "0.000000001"];

for (const text of [...REFUSED, "90071992.54740992", "9".repeat(33)]) {
  test(`${JSON.stringify(text)} is no amount`, async () =>
    assert.equal(await codeOf(() => parseAmount(text)), "amount"));
}

test("a typed amount may have a comma where it cannot mean thousands", async () => {
  const { read, refused } = vectors("typed_amounts");
  for (const [text, units] of Object.entries(read)) assert.equal(typedAmount(text), BigInt(units), text);
  for (const text of refused) assert.equal(await codeOf(() => typedAmount(text)), "amount", text);
});

test("an amount can be pasted as it is shown", () => {
  for (const units of [1n, 123_400_000_000n, 9_007_199_254_740_991n]) assert.equal(typedAmount(coins(units)), units);
});

test("coins have the name that the page gives them", async () => {
  globalThis.document = { documentElement: { dataset: { unit: "Token" }, lang: "en" }, getElementById: () => null };
  const { coins: tokens } = await import("../../../svcd/pages/static/digits.mjs?token");
  delete globalThis.document;
  assert.equal(tokens(250_000_000n), "2.5\u00a0Token");
});

test("amounts are shown in the shortest form", () => {
  const shown = [0n, 1n, 50_000_000n, 2_500_000_000n, 9_007_199_254_740_991n, 18_014_398_509_481_982n, -125_000_000n];
  const texts = ["0", "0.00000001", "0.5", "25", "90071992.54740991", "180143985.09481982", "-1.25"];
  assert.deepEqual(shown.map(formatAmount), texts);
});

test("people read coins in groups of three digits, whatever the node says", () => {
  const shown = [9_007_199_254_740_991n, 200_000_000_000n, 10_000n, -125_000_000_000n].map(coins);
  assert.deepEqual(shown, ["90\u202f071\u202f992.547\u202f409\u202f91\u00a0SVC", "2\u202f000\u00a0SVC", "0.0001\u00a0SVC", "-1\u202f250\u00a0SVC"]);
  assert.equal(inCoins("the balance is 250010000 base units short of 1 base unit"), "the balance is 2.5001\u00a0SVC short of 0.000\u202f000\u202f01\u00a0SVC");
  assert.equal(inCoins("nonce 3 is already used"), "nonce 3 is already used");
});

test("numbers of the wire have one form", () => {
  assert.equal(wireNumber("9007199254740991"), 9_007_199_254_740_991n);
  for (const odd of ["9007199254740992", "01", "-1", "1.0", "", " 1", 1, null, undefined, ["1"]]) {
    assert.equal(wireNumber(odd), null);
  }
});
