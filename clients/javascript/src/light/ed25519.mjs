// Ed25519 key pairs and signatures in WebCrypto (RFC 8032; JWK as in RFC 8037).

import { bytesOf, hexOf, joined } from "./bytes.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @typedef {{ privateKey: CryptoKey, publicKey: Bytes }} Key */

const NAME = "Ed25519";
/** PKCS #8 up to the key (RFC 8410). */
const X25519_START = bytesOf("302e020100300506032b656e04220420");
const X25519_BASE = Uint8Array.of(9, ...new Uint8Array(31));
/** The prime of the field of Curve25519. */
const PRIME = 2n ** 255n - 19n;

/** The 32-byte public key and the private key of a 32-byte seed; the private key cannot be exported. Rejects where the
 * platform has no Ed25519.
 *
 * It is imported as a JWK, because WebKitGTK 2.50 refuses PKCS #8 with a seed that begins with a zero.
 * @type {(seed: Bytes) => Promise<Key>} */
export async function pairOf(seed) {
  const y = await ordinateOf(seed);
  /** @type {unknown} */
  let cause;
  for (const signOfX of [0x00, 0x80]) {
    const publicKey = Uint8Array.of(...y.subarray(0, 31), Number(y.at(31)) | signOfX);
    const pair = { kty: "OKP", crv: NAME, d: base64url(seed), x: base64url(publicKey) };
    try {
      const privateKey = await crypto.subtle.importKey("jwk", pair, NAME, false, ["sign"]);
      const verifier = await crypto.subtle.importKey("raw", publicKey, NAME, false, ["verify"]);
      if (await crypto.subtle.verify(NAME, verifier, await sign(privateKey, y), y)) return { privateKey, publicKey };
    } catch (problem) {
      // Of the two public keys most browsers refuse the wrong one at once.
      cause = problem;
    }
  }
  throw new RangeError("this platform computes with Ed25519 and X25519 differently", { cause });
}

/** @type {(bytes: Bytes) => string} */
const base64url = (bytes) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

/** The y coordinate of the public key of a seed, little-endian.
 *
 * WebCrypto gives no public key for a private one, and Firefox 140 exports none that was imported without it. But
 * X25519 with the same scalar gives the u coordinate of the same point (RFC 7748, 4.1), from which y follows, but for
 * the sign of x: WebCrypto computes all that depends on the seed, this module only with what is public.
 * @type {(seed: Bytes) => Promise<Bytes>} */
async function ordinateOf(seed) {
  const scalar = new Uint8Array(await crypto.subtle.digest("SHA-512", seed)).slice(0, 32);
  // X25519 ignores the lowest bits, and WebKitGTK 2.50 refuses a scalar that begins with a zero.
  scalar[0] = Number(scalar[0]) | 1;
  const pkcs8 = joined(X25519_START, scalar);
  const own = await crypto.subtle.importKey("pkcs8", pkcs8, "X25519", false, ["deriveBits"]);
  scalar.fill(0);
  pkcs8.fill(0);
  const base = await crypto.subtle.importKey("raw", X25519_BASE, "X25519", false, []);
  const point = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: base }, own, 256));
  const u = BigInt(`0x${hexOf(point.reverse())}`);
  const y = ((u + PRIME - 1n) * power(u + 1n, PRIME - 2n)) % PRIME;
  return bytesOf(y.toString(16).padStart(64, "0")).reverse();
}

/** A power in the field.
 * @type {(base: bigint, exponent: bigint) => bigint} */
function power(base, exponent) {
  let result = 1n;
  for (const bit of exponent.toString(2)) {
    result = (result * result) % PRIME;
    if (bit === "1") result = (result * base) % PRIME;
  }
  return result;
}

/** The 64-byte signature of a message.
 * @type {(privateKey: CryptoKey, message: Bytes) => Promise<Bytes>} */
export async function sign(privateKey, message) {
  return new Uint8Array(await crypto.subtle.sign(NAME, privateKey, message));
}

/** Whether a signature is that of a public key over a message; false, too, for bytes that are no public key. Rejects
 * with a NotSupportedError where the platform has no Ed25519.
 * @type {(publicKey: Bytes, message: Bytes, signature: Bytes) => Promise<boolean>} */
export async function verify(publicKey, message, signature) {
  try {
    const key = await crypto.subtle.importKey("raw", publicKey, NAME, false, ["verify"]);
    return await crypto.subtle.verify(NAME, key, signature, message);
  } catch (problem) {
    // It says nothing of the signature.
    if (problem instanceof DOMException && problem.name === "NotSupportedError") throw problem;
    return false;
  }
}
