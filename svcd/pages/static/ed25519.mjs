// Ed25519 keys in WebCrypto, made from a seed of 32 bytes (RFC 8032; PKCS #8 as in RFC 8410).

import { bytesOf, joined } from "./bytes.mjs";
import { Problem } from "./problem.mjs";
import { message } from "./texts.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @typedef {{ privateKey: CryptoKey, publicKey: Bytes }} Key */

const PKCS8_START = bytesOf("302e020100300506032b657004220420");
const NAME = "Ed25519";

/** Throw `no-ed25519` unless this browser can sign with Ed25519. */
export async function checkSupport() {
  try {
    // WebKit refuses a seed of zeros.
    const seed = crypto.getRandomValues(new Uint8Array(32));
    await crypto.subtle.importKey("pkcs8", joined(PKCS8_START, seed), NAME, false, ["sign"]);
  } catch {
    throw new Problem("no-ed25519", message("wallet-script.no-ed25519"));
  }
}

/** The 32-byte public key and the private key of a seed; the private key cannot be read out of the browser again.
 * @type {(seed: Bytes) => Promise<Key>} */
export async function keyOf(seed) {
  const pkcs8 = joined(PKCS8_START, seed);
  const readable = await crypto.subtle.importKey("pkcs8", pkcs8, NAME, true, ["sign"]);
  const { x = "" } = await crypto.subtle.exportKey("jwk", readable);
  const privateKey = await crypto.subtle.importKey("pkcs8", pkcs8, NAME, false, ["sign"]);
  pkcs8.fill(0);
  const text = atob(x.replaceAll("-", "+").replaceAll("_", "/"));
  return { privateKey, publicKey: Uint8Array.from(text, (character) => character.charCodeAt(0)) };
}

/** The 64-byte signature of a message.
 * @type {(privateKey: CryptoKey, message: Bytes) => Promise<Bytes>} */
export async function sign(privateKey, message) {
  return new Uint8Array(await crypto.subtle.sign(NAME, privateKey, message));
}
