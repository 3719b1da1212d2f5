// Bytes, hex and the tagged hash of docs/protocol.md ("Notation"), with WebCrypto.

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

const encoder = new TextEncoder();

/** The UTF-8 of a text.
 * @type {(text: string) => Bytes} */
export const utf8 = (text) => encoder.encode(text);

/** Lower-case hex of bytes.
 * @type {(bytes: Uint8Array) => string} */
export const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The bytes of a hex text of even length; a RangeError for anything else.
 * @type {(hex: string) => Bytes} */
export function bytesOf(hex) {
  if (!/^(?:[0-9a-f]{2})*$/.test(hex)) throw new RangeError("hex has two digits of 0-9 a-f for each byte");
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** All parts behind one another.
 * @type {(...parts: Uint8Array[]) => Bytes} */
export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

/** SHA-256 of bytes.
 * @type {(bytes: Bytes) => Promise<Bytes>} */
export const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

/** H(tag, data) of docs/protocol.md: SHA-256 of the tag, a zero byte and the parts.
 * @type {(tag: string, ...parts: Uint8Array[]) => Promise<Bytes>} */
export const taggedHash = (tag, ...parts) => sha256(joined(utf8(tag), new Uint8Array(1), ...parts));
