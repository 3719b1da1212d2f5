// Bytes, hex and hashes, with WebCrypto.

const encoder = new TextEncoder();

export const utf8 = (text) => encoder.encode(text);

export const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The bytes of lower-case hex, or null if it is none of `size` bytes. */
export function bytesOf(hex, size) {
  if (typeof hex !== "string" || hex.length !== 2 * size || !/^[0-9a-f]*$/.test(hex)) return null;
  return Uint8Array.from({ length: size }, (_, place) => Number.parseInt(hex.slice(2 * place, 2 * place + 2), 16));
}

/** The bytes of base64 with padding, or null if it is none. */
export function bytesOfBase64(text) {
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text)) return null;
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

export const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

/** SHA-256 of a tag, a zero byte and the parts. */
export const taggedHash = (tag, ...parts) => sha256(joined(utf8(tag), new Uint8Array(1), ...parts));

/** Canonical JSON (RFC 8785) of objects, ASCII strings and integers. */
export function canonical(value) {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}
