// The key hashes in addresses (docs/protocol.md 3), for the worker only: the first view of the wallet loads bech32.mjs.

import { checksum, CHECKSUM_SYMBOLS, KEY_SYMBOLS, SYMBOLS } from "./bech32.mjs";

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
