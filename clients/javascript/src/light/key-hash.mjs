// Addresses (docs/protocol.md 3): bech32m over the key hash, the first 20 bytes of a tagged hash of the public key.

import { checksum, CHECKSUM_SYMBOLS, KEY_SYMBOLS, SYMBOLS } from "./bech32.mjs";
import { taggedHash } from "./bytes.mjs";

const KEY_BYTES = 20;

/** The 20-byte key hash of an address with this prefix as a number, or null if the text is no such address.
 * @type {(text: string, prefix: string) => bigint | null} */
export function keyOf(text, prefix) {
  if (!text.startsWith(`${prefix}1q`)) return null;
  const symbols = Array.from(text.slice(prefix.length + 1), (character) => SYMBOLS.indexOf(character));
  if (symbols.length !== 1 + KEY_SYMBOLS + CHECKSUM_SYMBOLS || symbols.includes(-1)) return null;
  const body = symbols.slice(0, KEY_SYMBOLS + 1);
  const right = checksum(prefix, body).every((symbol, place) => symbol === symbols[KEY_SYMBOLS + 1 + place]);
  return right ? body.reduce((sum, symbol) => (sum << 5n) | BigInt(symbol), 0n) : null;
}

/** The address of a 32-byte public key.
 * @type {(publicKey: Uint8Array, network: { prefix: string }) => Promise<string>} */
export async function addressOf(publicKey, { prefix }) {
  const hash = (await taggedHash("svc/address/v1", publicKey)).subarray(0, KEY_BYTES);
  const number = hash.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  const symbols = Array.from({ length: KEY_SYMBOLS + 1 }, (_, place) =>
    Number((number >> BigInt(5 * (KEY_SYMBOLS - place))) & 31n),
  );
  const all = [...symbols, ...checksum(prefix, symbols)];
  return `${prefix}1${all.map((symbol) => SYMBOLS[symbol]).join("")}`;
}
