import assert from "node:assert/strict";
import { test } from "node:test";

import { bytesOf, hexOf } from "../../../svcd/pages/static/bytes.mjs";
import { checkSupport, keyOf } from "../../../svcd/pages/static/ed25519.mjs";
import { checkPassword, parse, render, reseal, seal, unseal } from "../../../svcd/pages/static/keyfile.mjs";
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
  const { publicKey } = await keyOf(new Uint8Array(32));
  assert.equal(hexOf(publicKey), "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29");
  // The first byte of the SHA-512 of this seed is zero.
  const seed = bytesOf("a874154c8ac260b08363f7016ff0f83e9b1ffdb1e373314ff9a6db6fb56dd5e5");
  const expected = "4f39f30b3da4dbae90d60e4d73acccc6ee032bb6a22e5bcbc38c6c8946207286";
  assert.equal(hexOf((await keyOf(seed)).publicKey), expected);
  context.mock.method(subtle, "importKey", () => Promise.reject(new DOMException("no", "NotSupportedError")));
  assert.equal(await codeOf(checkSupport()), "no-ed25519");
});

const { keyfiles } = vectors("wallet");
const { keys } = vectors("svc_protocol").networks.devnet;
const [first] = keyfiles;
const { devnet, mainnet } = NETWORKS;

for (const vector of keyfiles) {
  const network = NETWORKS[vector.network];
  const { seed, password, salt, nonce, iterations, file } = vector;

  test(`${vector.network}: the bytes of a keyfile`, async () => {
    const random = (size) => bytesOf(size === 16 ? salt : nonce);
    assert.equal(render(await seal(bytesOf(seed), password, network, random, iterations)), file);
  });

  test(`${vector.network}: opened with the password`, async () => {
    const keyfile = parse(file, network);
    assert.equal(keyfile.address, vector.address);
    const { publicKey, privateKey } = await unseal(keyfile, password);
    assert.equal(publicKey.length, 32);
    assert.equal(privateKey.extractable, false);
  });
}

test("the key that comes out is the one that went in", async () => {
  const { publicKey } = await unseal(parse(first.file, devnet), first.password);
  assert.equal(hexOf(publicKey), keys.find(({ seed }) => seed === first.seed).publicKey);
});

test("a password is the same however its accents are composed", async () => {
  await unseal(parse(first.file, devnet), first.password.normalize("NFD"));
});

test("a wrong password", async () => {
  assert.equal(await codeOf(unseal(parse(first.file, devnet), `${first.password} `)), "wrong-password");
});

test("an address that was exchanged does not open", async () => {
  const other = { ...parse(first.file, devnet), address: keys[1].address };
  assert.equal(await codeOf(unseal(other, first.password)), "wrong-password");
});

test("blanks and another order of members are allowed", () => {
  const value = JSON.parse(first.file);
  const turned = Object.fromEntries(Object.entries(value).reverse());
  assert.deepEqual(parse(JSON.stringify(turned, null, 2), devnet), value);
});

test("a keyfile of another network", async () => {
  assert.equal(await codeOf(() => parse(first.file, mainnet)), "keyfile-of-other-network");
});

const edited = (edit) => {
  const value = JSON.parse(first.file);
  edit(value);
  return JSON.stringify(value);
};
const DAMAGED = {
  nothing: "",
  "no JSON": first.file.slice(0, -20),
  "an array": "[]",
  null: "null",
  "too long": first.file.trimEnd() + " ".repeat(4096),
  "a member twice": first.file.replace('{"address"', '{"network":"mainnet","address"'),
  "a number in another notation": first.file.replace("600000", "6e5"),
  "an unknown member": edited((value) => Object.assign(value, { note: "x" })),
  "a member too few": edited((value) => delete value.kdf),
  "another format": edited((value) => Object.assign(value, { format: "svc-keyfile-v2" })),
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
  test(`damaged: ${name}`, async () => assert.equal(await codeOf(() => parse(text, devnet)), "damaged-keyfile"));
}

test("a changed ciphertext does not open", async () => {
  const changed = edited((value) =>
    Object.assign(value.cipher, { ciphertext: value.cipher.ciphertext.replace(/^./, "f") }),
  );
  assert.equal(await codeOf(unseal(parse(changed, devnet), first.password)), "wrong-password");
});

test("a new password has at least 10 characters", async () => {
  assert.equal(await codeOf(() => checkPassword("123456789")), "password-short");
  checkPassword("1234567890");
  checkPassword("💰".repeat(10));
  assert.equal(await codeOf(() => checkPassword("💰".repeat(9))), "password-short");
});

test("another password for the same key", async () => {
  const old = parse(first.file, NETWORKS[first.network]);
  assert.equal(await codeOf(reseal(old, "wrong", "another horse", (size) => new Uint8Array(size))), "wrong-password");
  const anew = await reseal(old, first.password, "another horse", (size) => crypto.getRandomValues(new Uint8Array(size)));
  assert.equal(parse(render(anew), NETWORKS[first.network]).address, first.address);
  const [before, after] = await Promise.all([unseal(old, first.password), unseal(anew, "another horse")]);
  assert.deepEqual(after.publicKey, before.publicKey);
  assert.equal(await codeOf(unseal(anew, first.password)), "wrong-password");
});
