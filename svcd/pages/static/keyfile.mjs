// The keyfile "svc-keyfile-v2": a seed of 32 bytes, sealed by a password (docs/keyfile.md).
//
// The same JSON is what the browser keeps, what people download, and what the command line reads and writes. Keyfiles
// under Argon2id are read, but browsers cannot open them.

import { checkAddress } from "./address.mjs";
import { idOf } from "./built-in.mjs";
import { bytesOf, hexOf, utf8 } from "./bytes.mjs";
import { canonical } from "./canonical-json.mjs";
import { pairOf } from "./ed25519.mjs";
import { addressOf } from "./key-hash.mjs";
import { NETWORKS } from "./networks.mjs";
import { must, Problem } from "./problem.mjs";
import { message } from "./texts.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Key } from "./ed25519.mjs" */
/** @import { Network } from "./networks.mjs" */
/**
 * @typedef {object} Keyfile
 * @property {string} address
 * @property {string} format
 * @property {string} network the name of a built-in one, or the genesis hash of another
 * @property {{ ciphertext: string, name: string, nonce: string }} cipher
 * @property {{ iterations: number, name: string, salt: string, memory?: number, parallelism?: number }} kdf
 * @property {string} publicKey
 */

const FORMAT = "svc-keyfile-v2";
const PBKDF2 = "PBKDF2-SHA-256";
const ARGON2ID = "Argon2id";
const CIPHER = "AES-256-GCM";
/** What a file may say of the cost: less makes guessing cheap, more would let a file keep a program busy for minutes.
 * @type {Record<string, Record<string, [number, number]>>} */
const BOUNDS = {
  [PBKDF2]: { iterations: [600_000, 10_000_000] },
  [ARGON2ID]: { iterations: [2, 32], memory: [19_456, 262_144], parallelism: [1, 16] },
};
/** Rounds of PBKDF2 in a new file, at least. */
const MIN_ITERATIONS = 1_000_000;
const [, MAX_ITERATIONS] = BOUNDS[PBKDF2].iterations;
/** Rounds by which the computer's speed is measured. */
const PROBE = 200_000;
const MAX_BYTES = 4096;

/** Throw `no-ed25519` unless this browser can sign with the key of a seed. */
export async function checkSupport() {
  try {
    await pairOf(new Uint8Array(32).fill(1));
  } catch {
    throw new Problem("no-ed25519", message("wallet-script.no-ed25519"));
  }
}

/** @type {(password: string, salt: Bytes, iterations: number, use: KeyUsage) => Promise<CryptoKey>} */
async function cipherKey(password, salt, iterations, use) {
  const secret = await crypto.subtle.importKey("raw", utf8(password.normalize("NFC")), "PBKDF2", false, ["deriveKey"]);
  const kdf = { name: "PBKDF2", hash: "SHA-256", salt, iterations };
  return crypto.subtle.deriveKey(kdf, secret, { name: "AES-GCM", length: 256 }, false, [use]);
}

/** The rounds of PBKDF2 that take this computer about a second, and no fewer than a new file has at least.
 * @type {(clock?: () => number) => Promise<number>} */
export async function calibrated(clock = () => performance.now()) {
  const start = clock();
  // WebKitGTK 2.50 derives nothing from an empty password.
  await cipherKey("password", new Uint8Array(16), PROBE, "encrypt");
  const rounds = (PROBE * 1000) / Math.max(clock() - start, 1);
  return Math.min(Math.max(Math.round(rounds / 100_000) * 100_000, MIN_ITERATIONS), MAX_ITERATIONS);
}

/** The part of an address before the separator, which is in no other part.
 * @type {(keyfile: Pick<Keyfile, "address">) => string} */
const prefixOf = ({ address }) => address.split("1")[0];

/** Everything that can be read without the password: nothing of it can be changed without the password either.
 * @type {(keyfile: Omit<Keyfile, "cipher">) => Bytes} */
function additionalData({ address, format, kdf, network, publicKey }) {
  return utf8(canonical({ address, format, kdf, network, publicKey }));
}

/** The keyfile that holds `seed` under `password` on `network`; `random(n)` gives n bytes that nobody can guess.
 * @param {Bytes} seed
 * @param {string} password
 * @param {Network} network
 * @param {(size: number) => Bytes} random
 * @param {number} iterations
 * @returns {Promise<Keyfile>} */
export const seal = (seed, password, network, random, iterations) =>
  sealAs(seed, password, { id: idOf(network), prefix: network.prefix }, random, iterations);

/** The same for the network that a keyfile calls `id`.
 * @param {Bytes} seed
 * @param {string} password
 * @param {{ id: string, prefix: string }} network
 * @param {(size: number) => Bytes} random
 * @param {number} iterations
 * @returns {Promise<Keyfile>} */
async function sealAs(seed, password, network, random, iterations) {
  const salt = random(16);
  const nonce = random(12);
  const { publicKey } = await pairOf(seed);
  const readable = {
    address: await addressOf(publicKey, network),
    format: FORMAT,
    kdf: { iterations, name: PBKDF2, salt: hexOf(salt) },
    network: network.id,
    publicKey: hexOf(publicKey),
  };
  const key = await cipherKey(password, salt, iterations, "encrypt");
  const gcm = { name: "AES-GCM", iv: nonce, additionalData: additionalData(readable) };
  const ciphertext = new Uint8Array(await crypto.subtle.encrypt(gcm, key, seed));
  return { ...readable, cipher: { ciphertext: hexOf(ciphertext), name: CIPHER, nonce: hexOf(nonce) } };
}

/** The seed in a keyfile; throws `wrong-password` or `keyfile-argon2id`.
 * @type {(keyfile: Keyfile, password: string) => Promise<Bytes>} */
async function seedIn(keyfile, password) {
  const { iterations, name, salt } = keyfile.kdf;
  must(name === PBKDF2, "keyfile-argon2id", message("wallet-script.keyfile-argon2id"));
  const key = await cipherKey(password, bytesOf(salt), iterations, "decrypt");
  const gcm = { name: "AES-GCM", iv: bytesOf(keyfile.cipher.nonce), additionalData: additionalData(keyfile) };
  try {
    return new Uint8Array(await crypto.subtle.decrypt(gcm, key, bytesOf(keyfile.cipher.ciphertext)));
  } catch {
    throw new Problem("wrong-password", message("wallet-script.wrong-password"));
  }
}

/** The keyfile under another password, with at least as many rounds as before; throws what `unseal` throws.
 * @param {Keyfile} keyfile
 * @param {string} password
 * @param {string} newPassword
 * @param {(size: number) => Bytes} random */
export async function reseal(keyfile, password, newPassword, random, calibrate = calibrated) {
  const seed = await seedIn(keyfile, password);
  const iterations = Math.max(keyfile.kdf.iterations, await calibrate());
  const network = { id: keyfile.network, prefix: prefixOf(keyfile) };
  const sealed = await sealAs(seed, newPassword, network, random, iterations);
  seed.fill(0);
  must(sealed.address === keyfile.address, "damaged-keyfile", message("wallet-script.keyfile-not-own"));
  return sealed;
}

/** Whether a new file would resist guessing better, so that this one should be sealed anew.
 * @type {(keyfile: Keyfile) => boolean} */
export function outdated({ kdf }) {
  return kdf.name === PBKDF2 && kdf.iterations < MIN_ITERATIONS;
}

/** The key in a keyfile, as pairOf gives it; throws `wrong-password`, `keyfile-argon2id` or `damaged-keyfile`.
 * @type {(keyfile: Keyfile, password: string) => Promise<Key>} */
export async function unseal(keyfile, password) {
  const seed = await seedIn(keyfile, password);
  const opened = await pairOf(seed);
  seed.fill(0);
  const { address, publicKey } = keyfile;
  const own = (await addressOf(opened.publicKey, { prefix: prefixOf(keyfile) })) === address && hexOf(opened.publicKey) === publicKey;
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

/** @type {(kdf: Keyfile["kdf"]) => void} */
function checkKdf(kdf) {
  const known = kdf?.name === PBKDF2 || kdf?.name === ARGON2ID;
  if (!known) throw damaged(`kdf.name must be ${PBKDF2} or ${ARGON2ID}`);
  const bounds = BOUNDS[kdf.name];
  exact(kdf, [...Object.keys(bounds), "name", "salt"].sort().join(), "kdf");
  for (const [cost, [least, most]] of Object.entries(bounds)) {
    const value = /** @type {Record<string, unknown>} */ (kdf)[cost];
    const bearable = typeof value === "number" && Number.isInteger(value) && value >= least && value <= most;
    if (!bearable) throw damaged(`kdf.${cost} must be a whole number from ${least} to ${most}`);
  }
  hex(kdf.salt, 16, "kdf.salt");
}

/** The keyfile in the text of a file for `network`; throws `damaged-keyfile` or `keyfile-of-other-network`.
 * @type {(text: string, network: Network) => Promise<Keyfile>} */
export async function parse(text, network) {
  if (text.length > MAX_BYTES) throw damaged(`it has more than ${MAX_BYTES} characters`);
  const value = /** @type {Keyfile} */ (fieldsOf(text));
  // First: a file of another format has other members.
  if (value?.format !== FORMAT) throw damaged(`its format must be ${FORMAT}`);
  const keyfile = exact(value, "address,cipher,format,kdf,network,publicKey", "the keyfile");
  checkKdf(keyfile.kdf);
  const cipher = exact(keyfile.cipher, "ciphertext,name,nonce", "cipher");
  if (cipher.name !== CIPHER) throw damaged(`cipher.name must be ${CIPHER}`);
  hex(cipher.nonce, 12, "cipher.nonce");
  hex(cipher.ciphertext, 48, "cipher.ciphertext");
  const ours = keyfile.network === idOf(network);
  const own = ours ? network : Object.values(NETWORKS).find(({ name }) => name === keyfile.network);
  if (own === undefined) {
    const isOther = typeof keyfile.network === "string" && /^[0-9a-f]{64}$/.test(keyfile.network);
    if (!isOther) throw damaged("its network is unknown");
    throw ofOther(keyfile, network);
  }
  checkOwnAddress(keyfile, own);
  await checkPublicKey(keyfile.publicKey, keyfile);
  // No value holds a blank, so whatever is longer than the canonical text says something twice or in another notation.
  if (text.replace(/[ \t\r\n]/g, "").length !== canonical(keyfile).length) throw damaged("it says something twice");
  if (!ours) throw ofOther(keyfile, network);
  return keyfile;
}

/** @type {(keyfile: Keyfile, network: Network) => Problem} */
function ofOther({ network: other }, network) {
  const { name, genesisHash: hash } = network;
  const sentence = Object.hasOwn(NETWORKS, other)
    ? message("wallet-script.keyfile-of-other", { other, network: name })
    : message("wallet-script.genesis-other", { name, hash, given: other });
  return new Problem("keyfile-of-other-network", sentence);
}

/** @type {(publicKey: string, keyfile: Keyfile) => Promise<void>} */
async function checkPublicKey(publicKey, keyfile) {
  hex(publicKey, 32, "publicKey");
  const own = (await addressOf(bytesOf(publicKey), { prefix: prefixOf(keyfile) })) === keyfile.address;
  if (!own) throw damaged("its address is not that of its publicKey");
}

/** @type {(keyfile: Keyfile, network: Network) => void} */
function checkOwnAddress(keyfile, network) {
  try {
    if (typeof keyfile.address !== "string") throw damaged("its address is no text");
    checkAddress(keyfile.address, network);
  } catch {
    throw damaged("its address is not one of its network");
  }
}
