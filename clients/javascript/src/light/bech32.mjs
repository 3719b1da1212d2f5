// Bech32m (BIP-350), in which addresses are written (docs/protocol.md 3).

/** The symbols of five bits each. */
export const SYMBOLS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const GENERATORS = [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3];
const BECH32M = 0x2bc830a3;
/** The symbols of a key hash. */
export const KEY_SYMBOLS = 32;
/** The symbols of a checksum. */
export const CHECKSUM_SYMBOLS = 6;

/** The checksum behind symbols.
 * @type {(prefix: string, symbols: number[]) => number[]} */
export function checksum(prefix, symbols) {
  const codes = Array.from(prefix, (character) => character.charCodeAt(0));
  const values = [
    ...codes.map((code) => code >> 5),
    0,
    ...codes.map((code) => code & 31),
    ...symbols,
    0,
    0,
    0,
    0,
    0,
    0,
  ];
  let state = 1;
  for (const value of values) {
    const top = state >>> 25;
    state = ((state & 0x1ffffff) << 5) ^ value;
    GENERATORS.forEach((generator, bit) => {
      if ((top >> bit) & 1) state ^= generator;
    });
  }
  return Array.from({ length: CHECKSUM_SYMBOLS }, (_, place) => ((state ^ BECH32M) >>> (5 * (5 - place))) & 31);
}
