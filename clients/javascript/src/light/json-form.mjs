// JSON that every program reads in the same way (docs/protocol.md 2).

import { visible } from "./visible.mjs";

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]]|-?[0-9][0-9.eE+-]*/g;
const COLON = /[ \t\r\n]*:/y;
/** How deep objects and arrays may be in each other. */
const MAX_DEPTH = 64;

/** What no program reads as another one does in a text that is JSON, or null: a key twice in one object, too deep a
 * nesting, and, if all numbers must be `whole`, one with a fraction or an exponent.
 * @type {(text: string, whole?: boolean) => string | null} */
export function formFault(text, whole = false) {
  /** @type {Set<string>[]} */
  const open = [];
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    if (token === "{" || token === "[") {
      if (open.push(new Set()) > MAX_DEPTH) return `objects and arrays are more than ${MAX_DEPTH} deep in each other`;
    } else if (token === "}" || token === "]") open.pop();
    else if (token[0] !== '"') {
      if (whole && !/^(?:0|-?[1-9][0-9]*)$/.test(token)) return `${token.slice(0, 32)} is not a whole number`;
    } else {
      COLON.lastIndex = index + token.length;
      if (!COLON.test(text)) continue;
      const keys = /** @type {Set<string>} */ (open.at(-1));
      const key = JSON.parse(token);
      if (keys.has(key)) return `the key ${visible(token.slice(0, 64))} occurs twice in one object`;
      keys.add(key);
    }
  }
  return null;
}
