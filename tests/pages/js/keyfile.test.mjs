import assert from "node:assert/strict";
import { test } from "node:test";

import { bytesOf, hexOf } from "../../../svcd/pages/static/bytes.mjs";
import { pairOf } from "../../../svcd/pages/static/ed25519.mjs";
import { calibrated, checkSupport, outdated, parse, render, reseal, seal, unseal } from "../../../svcd/pages/static/keyfile.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { codeOf, vectors } from "./vectors.mjs";

test("keys are made in browsers that refuse what WebKitGTK 2.50 and Firefox 140 refuse", async (context) => {
  const { subtle } = crypto;
  const importKey = subtle.importKey.bind(subtle);
  context.mock.method(subtle, "importKey", async (format, data, ...rest) => {
    if (format === "pkcs8" && data.at(-32) === 0) throw new DOMException("no", "DataError");
    return importKey(format, data, ...rest);
  });
  context.mock.method(subtle, "exportKey", () => Promise.reject(new DOMException("no", "OperationError")));
  await checkSupport();
  const { publicKey } = await pairOf(new Uint8Array(32));
  assert.equal(hexOf(publicKey), "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29");
  // The first byte of the SHA-512 of this seed is zero.
  const seed = bytesOf("a874154c8ac260b08363f7016ff0f83e9b1ffdb1e373314ff9a6db6fb56dd5e5");
  const expected = "4f39f30b3da4dbae90d60e4d73acccc6ee032bb6a22e5bcbc38c6c8946207286";
  assert.equal(hexOf((await pairOf(seed)).publicKey), expected);
  context.mock.method(subtle, "importKey", () => Promise.reject(new DOMException("no", "NotSupportedError")));
  assert.equal(await codeOf(checkSupport()), "no-ed25519");
});

const { keyfiles: all } = vectors("wallet");
const keyfiles = all.filter(({ kdf }) => kdf.name === "PBKDF2-SHA-256");
const [argon2id] = all.filter(({ kdf }) => kdf.name === "Argon2id");
const atRandom = (size) => crypto.getRandomValues(new Uint8Array(size));
const { keys } = vectors("svc_protocol").networks.devnet;
const [first] = keyfiles;
const { devnet, mainnet } = NETWORKS;
// What is said of every cost is tried at the lowest one, which no file may have; the vectors have the real ones.
const cheap = await seal(bytesOf(first.seed), first.password, devnet, (size) => new Uint8Array(size), 1);

for (const vector of keyfiles) {
  const network = NETWORKS[vector.network];
  const { seed, password, kdf, nonce, file } = vector;

  test(`${vector.network}: the bytes of a keyfile`, async () => {
    const random = (size) => bytesOf(size === 16 ? kdf.salt : nonce);
    assert.equal(render(await seal(bytesOf(seed), password, network, random, kdf.iterations)), file);
  });

  test(`${vector.network}: opened with the password`, async () => {
    const keyfile = await parse(file, network);
    assert.equal(keyfile.address, vector.address);
    assert.equal(outdated(keyfile), false);
    const { publicKey, privateKey } = await unseal(keyfile, password);
    assert.equal(hexOf(publicKey), vector.publicKey);
    assert.equal(privateKey.extractable, false);
  });
}

test("a keyfile under Argon2id is read, and told apart from a wrong password", async () => {
  const keyfile = await parse(argon2id.file, NETWORKS[argon2id.network]);
  assert.equal(keyfile.address, argon2id.address);
  assert.equal(outdated(keyfile), false);
  assert.equal(await codeOf(unseal(keyfile, argon2id.password)), "keyfile-argon2id");
});

test("the rounds for about a second are measured, within their bounds", async () => {
  const taking = (milliseconds) => {
    const times = [0, milliseconds];
    return calibrated(() => times.shift());
  };
  assert.equal(await taking(100), 2_000_000);
  assert.equal(await taking(130), 1_500_000);
  assert.equal(await taking(1_000), 1_000_000);
  assert.equal(await taking(0), 10_000_000);
});

test("a change of password never lowers the rounds", async () => {
  const two = await seal(bytesOf(first.seed), "old", devnet, atRandom, 2);
  const anew = await reseal(two, "old", "new", atRandom, () => Promise.resolve(1));
  assert.equal(anew.kdf.iterations, 2);
  const more = await reseal(two, "old", "new", atRandom, () => Promise.resolve(3));
  assert.equal(more.kdf.iterations, 3);
});

test("a file of fewer rounds than new ones have is outdated", async () => {
  const of = (iterations) => parse(render({ ...cheap, kdf: { ...cheap.kdf, iterations } }), devnet);
  assert.equal(outdated(await of(999_999)), true);
  assert.equal(outdated(await of(1_000_000)), false);
});

test("the key that comes out is the one that went in", async () => {
  const { publicKey } = await unseal(cheap, first.password);
  assert.equal(hexOf(publicKey), keys.find(({ seed }) => seed === first.seed).publicKey);
});

test("a password is the same however its accents are composed", async () => {
  assert.notEqual(first.password.normalize("NFD"), first.password);
  await unseal(cheap, first.password.normalize("NFD"));
});

test("a wrong password", async () => {
  assert.equal(await codeOf(unseal(cheap, `${first.password} `)), "wrong-password");
});

test("an address that was exchanged does not open", async () => {
  const { address, publicKey } = keys[1];
  for (const change of [{ address }, { publicKey }, { address, publicKey }, { kdf: { ...cheap.kdf, iterations: 2 } }]) {
    assert.equal(await codeOf(unseal({ ...cheap, ...change }, first.password)), "wrong-password");
  }
});

test("blanks and another order of members are allowed", async () => {
  const value = JSON.parse(first.file);
  const turned = Object.fromEntries(Object.entries(value).reverse());
  assert.deepEqual(await parse(JSON.stringify(turned, null, 2), devnet), value);
});

test("a keyfile of another network", async () => {
  assert.equal(await codeOf(parse(first.file, mainnet)), "keyfile-of-other-network");
});

const edited = (edit) => {
  const value = JSON.parse(first.file);
  edit(value);
  return JSON.stringify(value);
};
const costly = (change) => {
  const value = JSON.parse(argon2id.file);
  Object.assign(value.kdf, change);
  return JSON.stringify(value);
};
const DAMAGED = {
  nothing: "",
  "no JSON": first.file.slice(0, -20),
  "an array": "[]",
  null: "null",
  "too long": first.file.trimEnd() + " ".repeat(4096),
  "a member twice": first.file.replace('{"address"', '{"network":"mainnet","address"'),
  "a number in another notation": first.file.replace("1000000", "1e6"),
  "an unknown member": edited((value) => Object.assign(value, { note: "x" })),
  "a member too few": edited((value) => delete value.kdf),
  "another format": edited((value) => Object.assign(value, { format: "svc-keyfile-v3" })),
  "no format": edited((value) => delete value.format),
  "no public key": edited((value) => delete value.publicKey),
  "a public key of another address": edited((value) => Object.assign(value, { publicKey: keys[1].publicKey })),
  "a short public key": edited((value) => Object.assign(value, { publicKey: "00" })),
  "another kdf": edited((value) => Object.assign(value.kdf, { name: "toString" })),
  "no kdf": edited((value) => Object.assign(value, { kdf: null })),
  "Argon2id without its costs": edited((value) => Object.assign(value.kdf, { name: "Argon2id" })),
  "Argon2id of more memory than is allowed": costly({ memory: 262_145 }),
  "Argon2id of too little memory": costly({ memory: 19_455 }),
  "Argon2id of too many passes": costly({ iterations: 33 }),
  "Argon2id of too many lanes": costly({ parallelism: 17 }),
  "another network": edited((value) => Object.assign(value, { network: "toString" })),
  "too few rounds": edited((value) => Object.assign(value.kdf, { iterations: 599_999 })),
  "too many rounds": edited((value) => Object.assign(value.kdf, { iterations: 10_000_001 })),
  "rounds as text": edited((value) => Object.assign(value.kdf, { iterations: "600000" })),
  "another cipher": edited((value) => Object.assign(value.cipher, { name: "AES-128-GCM" })),
  "a short salt": edited((value) => Object.assign(value.kdf, { salt: "00" })),
  "hex in upper case": edited((value) => Object.assign(value.kdf, { salt: value.kdf.salt.toUpperCase() })),
  "a mistyped address": edited((value) => Object.assign(value, { address: value.address.replace(/.$/, "q") })),
  "an address that is no text": edited((value) => Object.assign(value, { address: 1 })),
};

for (const [name, text] of Object.entries(DAMAGED)) {
  test(`damaged: ${name}`, async () => assert.equal(await codeOf(parse(text, devnet)), "damaged-keyfile"));
}

test("a changed ciphertext does not open", async () => {
  const ciphertext = cheap.cipher.ciphertext.replace(/^./, (digit) => (digit === "f" ? "0" : "f"));
  const changed = { ...cheap, cipher: { ...cheap.cipher, ciphertext } };
  assert.equal(await codeOf(unseal(changed, first.password)), "wrong-password");
});

test("another password for the same key", async () => {
  assert.equal(await codeOf(reseal(cheap, "wrong", "another horse", atRandom)), "wrong-password");
  // As the page does it: with the rounds of this computer.
  const anew = await reseal(cheap, first.password, "another horse", atRandom);
  assert.equal((await parse(render(anew), devnet)).address, first.address);
  const [before, after] = await Promise.all([unseal(cheap, first.password), unseal(anew, "another horse")]);
  assert.deepEqual(after.publicKey, before.publicKey);
  const again = await reseal(cheap, first.password, "another horse", atRandom, () => Promise.resolve(1));
  assert.equal(await codeOf(unseal(again, first.password)), "wrong-password");
});
