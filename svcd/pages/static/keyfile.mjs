// The keyfile "svc-keyfile-v1": a seed of 32 bytes, sealed by a password (docs/command-line.md "The keyfile").
//
// The same JSON is what the browser keeps, what people download, and what the command line reads and writes.

import { addressOf, checkAddress } from "./address.mjs";
import { bytesOf, hexOf, utf8 } from "./bytes.mjs";
import { keyOf } from "./ed25519.mjs";
import { NETWORKS } from "./networks.mjs";
import { must, Problem } from "./problem.mjs";
import { message } from "./texts.mjs";
import { canonical } from "./transaction.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Key } from "./ed25519.mjs" */
/** @import { Network, NetworkName } from "./networks.mjs" */
/**
 * @typedef {object} Keyfile
 * @property {string} address
 * @property {string} format
 * @property {NetworkName} network
 * @property {{ ciphertext: string, name: string, nonce: string }} cipher
 * @property {{ iterations: number, name: string, salt: string }} kdf
 */

const FORMAT = "svc-keyfile-v1";
const KDF = "PBKDF2-SHA-256";
const CIPHER = "AES-256-GCM";
const MIN_ITERATIONS = 600_000;
const MAX_ITERATIONS = 10_000_000;
const MAX_BYTES = 4096;

/** The least characters of a new password. */
const MIN_PASSWORD = 10;

/** Throw `password-short` if a new password has too few characters.
 * @type {(password: string) => void} */
export function checkPassword(password) {
  const { length } = [...password.normalize("NFC")];
  const sentence = message("wallet-script.password-short", { count: length, least: MIN_PASSWORD });
  must(length >= MIN_PASSWORD, "password-short", sentence);
}

/** @type {(password: string, salt: Bytes, iterations: number, use: KeyUsage) => Promise<CryptoKey>} */
async function cipherKey(password, salt, iterations, use) {
  const secret = await crypto.subtle.importKey("raw", utf8(password.normalize("NFC")), "PBKDF2", false, ["deriveKey"]);
  const kdf = { name: "PBKDF2", hash: "SHA-256", salt, iterations };
  return crypto.subtle.deriveKey(kdf, secret, { name: "AES-GCM", length: 256 }, false, [use]);
}

/** @type {(keyfile: Pick<Keyfile, "address" | "format" | "network">) => Bytes} */
const additionalData = (keyfile) => utf8(`${keyfile.address}\n${keyfile.format}\n${keyfile.network}`);

/** The keyfile that holds `seed` under `password` on `network`; `random(n)` gives n bytes that nobody can guess.
 * @param {Bytes} seed
 * @param {string} password
 * @param {Network} network
 * @param {(size: number) => Bytes} random
 * @returns {Promise<Keyfile>} */
export async function seal(seed, password, network, random, iterations = MIN_ITERATIONS) {
  const salt = random(16);
  const nonce = random(12);
  const { publicKey } = await keyOf(seed);
  const open = { address: await addressOf(publicKey, network), format: FORMAT, network: network.name };
  const key = await cipherKey(password, salt, iterations, "encrypt");
  const gcm = { name: "AES-GCM", iv: nonce, additionalData: additionalData(open) };
  const ciphertext = new Uint8Array(await crypto.subtle.encrypt(gcm, key, seed));
  return {
    ...open,
    cipher: { ciphertext: hexOf(ciphertext), name: CIPHER, nonce: hexOf(nonce) },
    kdf: { iterations, name: KDF, salt: hexOf(salt) },
  };
}

/** The seed in a keyfile; throws `wrong-password`.
 * @type {(keyfile: Keyfile, password: string) => Promise<Bytes>} */
async function seedIn(keyfile, password) {
  const { iterations, salt } = keyfile.kdf;
  const key = await cipherKey(password, bytesOf(salt), iterations, "decrypt");
  const gcm = { name: "AES-GCM", iv: bytesOf(keyfile.cipher.nonce), additionalData: additionalData(keyfile) };
  try {
    return new Uint8Array(await crypto.subtle.decrypt(gcm, key, bytesOf(keyfile.cipher.ciphertext)));
  } catch {
    throw new Problem("wrong-password", message("wallet-script.wrong-password"));
  }
}

/** The keyfile under another password; throws `wrong-password`.
 * @param {Keyfile} keyfile
 * @param {string} password
 * @param {string} newPassword
 * @param {(size: number) => Bytes} random */
export async function reseal(keyfile, password, newPassword, random) {
  const seed = await seedIn(keyfile, password);
  const sealed = await seal(seed, newPassword, NETWORKS[keyfile.network], random);
  seed.fill(0);
  return sealed;
}

/** The key in a keyfile, as keyOf gives it; throws `wrong-password` or `damaged-keyfile`.
 * @type {(keyfile: Keyfile, password: string) => Promise<Key>} */
export async function unseal(keyfile, password) {
  const seed = await seedIn(keyfile, password);
  const opened = await keyOf(seed);
  seed.fill(0);
  const own = (await addressOf(opened.publicKey, NETWORKS[keyfile.network])) === keyfile.address;
  must(own, "damaged-keyfile", message("wallet-script.keyfile-not-own"));
  return opened;
}

/** The text of the file: canonical JSON and a line feed.
 * @type {(keyfile: Keyfile) => string} */
export const render = (keyfile) => `${canonical(keyfile)}\n`;

/** @type {(what: string) => Problem} */
function damaged(what) {
  return new Problem("damaged-keyfile", message("wallet-script.keyfile-damaged", { what }));
}

/** @template T
 * @param {T} value
 * @param {string} names
 * @param {string} what */
function exact(value, names, what) {
  const right = typeof value === "object" && value !== null && Object.keys(value).sort().join() === names;
  if (!right) throw damaged(`${what} must have exactly ${names.replaceAll(",", ", ")}`);
  return value;
}

/** @type {(value: unknown, size: number, what: string) => void} */
function hex(value, size, what) {
  if (typeof value !== "string" || !new RegExp(`^[0-9a-f]{${2 * size}}$`).test(value)) {
    throw damaged(`${what} must be ${2 * size} hex digits in lower case`);
  }
}

/** @type {(text: string) => unknown} */
function fieldsOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw damaged("it is not JSON");
  }
}

/** The keyfile in the text of a file for `network`; throws `damaged-keyfile` or `keyfile-of-other-network`.
 * @type {(text: string, network: Network) => Keyfile} */
export function parse(text, network) {
  if (text.length > MAX_BYTES) throw damaged(`it has more than ${MAX_BYTES} characters`);
  const keyfile = exact(/** @type {Keyfile} */ (fieldsOf(text)), "address,cipher,format,kdf,network", "the keyfile");
  if (keyfile.format !== FORMAT) throw damaged(`its format must be ${FORMAT}`);
  const kdf = exact(keyfile.kdf, "iterations,name,salt", "kdf");
  const cipher = exact(keyfile.cipher, "ciphertext,name,nonce", "cipher");
  if (kdf.name !== KDF) throw damaged(`kdf.name must be ${KDF}`);
  if (cipher.name !== CIPHER) throw damaged(`cipher.name must be ${CIPHER}`);
  // Fewer rounds make guessing cheap; more would let a file keep the browser busy for ever.
  const bearable =
    Number.isInteger(kdf.iterations) && kdf.iterations >= MIN_ITERATIONS && kdf.iterations <= MAX_ITERATIONS;
  if (!bearable) throw damaged(`kdf.iterations must be a whole number from ${MIN_ITERATIONS} to ${MAX_ITERATIONS}`);
  hex(kdf.salt, 16, "kdf.salt");
  hex(cipher.nonce, 12, "cipher.nonce");
  hex(cipher.ciphertext, 48, "cipher.ciphertext");
  if (!Object.hasOwn(NETWORKS, keyfile.network)) throw damaged("its network is unknown");
  checkOwnAddress(keyfile);
  // No value holds a blank, so whatever is longer than the canonical text says something twice or in another notation.
  if (text.replace(/[ \t\r\n]/g, "").length !== canonical(keyfile).length) throw damaged("it says something twice");
  const sentence = message("wallet-script.keyfile-of-other", { other: keyfile.network, network: network.name });
  must(keyfile.network === network.name, "keyfile-of-other-network", sentence);
  return keyfile;
}

/** @type {(keyfile: Keyfile) => void} */
function checkOwnAddress(keyfile) {
  try {
    if (typeof keyfile.address !== "string") throw damaged("its address is no text");
    checkAddress(keyfile.address, NETWORKS[keyfile.network]);
  } catch {
    throw damaged("its address is not one of its network");
  }
}
