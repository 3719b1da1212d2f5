// Hex and base64 of others, of which nothing is known, and canonical JSON.

import { bytesOf } from "./light/bytes.mjs";

/** The bytes of lower-case hex, or null if it is none of `size` bytes. */
export const bytesOfSize = (hex, size) =>
  typeof hex === "string" && hex.length === 2 * size && /^[0-9a-f]*$/.test(hex) ? bytesOf(hex) : null;

/** The bytes of base64 with padding, or null if it is none. */
export function bytesOfBase64(text) {
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text)) return null;
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Canonical JSON (RFC 8785) of objects, ASCII strings and integers. */
export function canonical(value) {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}
