// Hex and base64 of others, of which nothing is known.

import { bytesOf } from "./light/bytes.mjs";

/** The bytes of lower-case hex, or null if it is none of `size` bytes. */
export const bytesOfSize = (hex, size) =>
  typeof hex === "string" && hex.length === 2 * size && /^[0-9a-f]*$/.test(hex) ? bytesOf(hex) : null;

/** The bytes of base64 with padding, or null if it is none. */
export function bytesOfBase64(text) {
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text)) return null;
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
