import assert from "node:assert/strict";
import { test } from "node:test";

import { bytesOf, hexOf } from "../../../svcd/pages/static/bytes.mjs";
import { pairOf } from "../../../svcd/pages/static/ed25519.mjs";
import * as mnemonic from "../../../svcd/pages/static/mnemonic.mjs";
import { bip39Seed, firstKey, seedOfWords, wordList, wordsOf } from "../../../svcd/pages/static/mnemonic.mjs";
import { addressOf } from "../../../svcd/pages/static/key-hash.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { readWords } from "../../../svcd/pages/static/words.mjs";
import { codeOf, listText, problemOf, vectors } from "./vectors.mjs";

const { bip39, slip0010, wallets, sameWords, invalidWords } = vectors("wallet");
const list = await wordList(listText());

for (const { entropy, words, passphrase, seed } of bip39) {
  test(`BIP-39: ${words.slice(0, 30)}…`, async () => {
    assert.equal((await wordsOf(bytesOf(entropy), list)).join(" "), words);
    assert.deepEqual(await readWords(words, list, mnemonic), words.split(" "));
    assert.equal(hexOf(await bip39Seed(words.split(" "), passphrase)), seed);
  });
}

for (const { seed, privateKey } of slip0010.filter(({ path }) => path === "m/0'")) {
  test(`SLIP-0010 m/0': ${seed.slice(0, 16)}…`, async () => {
    assert.equal(hexOf(await firstKey(bytesOf(seed))), privateKey);
  });
}

for (const { words, stretched, seed, publicKey, address } of wallets) {
  test(`a wallet from ${words.slice(0, 30)}…`, async () => {
    assert.equal(hexOf(await bip39Seed(words.split(" "))), stretched);
    const made = await seedOfWords(words.split(" "));
    assert.equal(hexOf(made), seed);
    const key = await pairOf(made);
    assert.equal(hexOf(key.publicKey), publicKey);
    for (const [name, expected] of Object.entries(address)) {
      assert.equal(await addressOf(key.publicKey, NETWORKS[name]), expected);
    }
  });
}

for (const { name, typed } of sameWords) {
  test(`the same words: ${name}`, async () => assert.equal((await readWords(typed, list, mnemonic)).join(" "), wallets[1].words));
}

for (const { name, words } of invalidWords) {
  test(`refused: ${name}`, async () => assert.equal(await codeOf(() => readWords(words, list, mnemonic)), "words"));
}

test("the word that is wrong is named", async () => {
  const { sentence } = await problemOf(() => readWords(wallets[1].words.replace("dutch", "duch"), list, mnemonic));
  assert.match(sentence, /^Word 4, “duch”/);
});

test("only the published word list is one", async () => {
  const changed = [listText().replace("zoo", "abandon"), listText().replace("zoo", "zzz"), `${listText()}\n`];
  for (const text of ["<html>", ...changed]) await assert.rejects(wordList(text), RangeError);
});
