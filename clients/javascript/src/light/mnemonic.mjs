// Twenty-four words for a key: BIP-39 (English, no passphrase), then SLIP-0010 for Ed25519 at m/0'.

import { hexOf, joined, sha256, utf8 } from "./bytes.mjs";

/** @import { Bytes } from "./bytes.mjs" */

/** How many words stand for a wallet. */
export const WORD_COUNT = 24;
const ENTROPY_BYTES = 32;
/** Of bip-0039/english.txt in the repository of the BIPs: another list derives other keys. */
const LIST_SHA256 = "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda";
const ROUNDS = 2048;

/** The words of the list's text, one on each line; rejects with RangeError if it is not the published list.
 * @type {(text: string) => Promise<string[]>} */
export async function wordList(text) {
  if (hexOf(await sha256(utf8(text))) !== LIST_SHA256) throw new RangeError("not the word list of BIP-39");
  return text.trim().split("\n");
}

/** The 24 words of a list for 32 bytes of entropy; rejects with RangeError for another number of bytes.
 * @type {(entropy: Bytes, list: string[]) => Promise<string[]>} */
export async function wordsOf(entropy, list) {
  if (entropy.length !== ENTROPY_BYTES) throw new RangeError("24 words stand for 32 bytes");
  const bits = joined(entropy, (await sha256(entropy)).subarray(0, 1)).reduce(
    (sum, byte) => (sum << 8n) | BigInt(byte),
    0n,
  );
  return Array.from(
    { length: WORD_COUNT },
    (_, place) => list[Number((bits >> BigInt(11 * (WORD_COUNT - 1 - place))) & 2047n)],
  );
}

/** The words in a text that a person has typed, in lower case.
 * @type {(text: string) => string[]} */
export const wordsIn = (text) =>
  text
    .normalize("NFKD")
    .toLowerCase()
    .split(/[\s,]+/)
    .filter((word) => word !== "");

/** Why words are not those of a wallet, or null: the place of one that the list lacks, from 0, `count` or `checksum`.
 * @type {(words: string[], list: string[]) => Promise<number | "count" | "checksum" | null>} */
export async function faultIn(words, list) {
  const unknown = words.findIndex((word) => !list.includes(word));
  if (unknown >= 0) return unknown;
  if (words.length !== WORD_COUNT) return "count";
  const bits = words.reduce((sum, word) => (sum << 11n) | BigInt(list.indexOf(word)), 0n);
  const entropy = Uint8Array.from({ length: ENTROPY_BYTES }, (_, place) =>
    Number((bits >> BigInt(8 * (ENTROPY_BYTES - place))) & 255n),
  );
  return (await wordsOf(entropy, list)).at(-1) === words.at(-1) ? null : "checksum";
}

/** @type {(key: Bytes, message: Bytes) => Promise<Bytes>} */
async function hmacSha512(key, message) {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-512" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, message));
}

/** The 32-byte seed at m/0' under a seed of SLIP-0010.
 * @type {(bip39Seed: Bytes) => Promise<Bytes>} */
export async function firstKey(bip39Seed) {
  const master = await hmacSha512(utf8("ed25519 seed"), bip39Seed);
  const hardenedZero = Uint8Array.of(0x80, 0, 0, 0);
  const child = await hmacSha512(master.subarray(32), joined(new Uint8Array(1), master.subarray(0, 32), hardenedZero));
  return child.subarray(0, 32);
}

/** The 64-byte seed of BIP-39 for words, without a passphrase or with one.
 * @type {(words: string[], passphrase?: string) => Promise<Bytes>} */
export async function bip39Seed(words, passphrase = "") {
  const key = await crypto.subtle.importKey("raw", utf8(words.join(" ").normalize("NFKD")), "PBKDF2", false, [
    "deriveBits",
  ]);
  const salt = utf8(`mnemonic${passphrase}`.normalize("NFKD"));
  const bits = await crypto.subtle.deriveBits({ name: "PBKDF2", hash: "SHA-512", salt, iterations: ROUNDS }, key, 512);
  return new Uint8Array(bits);
}

/** The 32-byte seed of the Ed25519 key that 24 words stand for.
 * @type {(words: string[]) => Promise<Bytes>} */
export const seedOfWords = async (words) => firstKey(await bip39Seed(words));
