// What went wrong, for programs and for people.

import { message } from "./texts.mjs";
import { escaped, visible } from "./visible.mjs";

/** A fault with a stable `code` (listed in tests/wallet-page.md) and one sentence that a person can act upon. */
export class Problem extends Error {
  /** The field that it is about, if it is about one.
   * @type {HTMLElement | undefined} */
  field = undefined;
  /** What is missing of the balance in base units, with the code `insufficient`.
   * @type {bigint | undefined} */
  missing = undefined;

  /** @param {string} code
   * @param {string} sentence */
  constructor(code, sentence) {
    super(sentence);
    this.name = "Problem";
    this.code = code;
  }
}

/** Throw a Problem unless `truth` holds.
 * @type {(truth: unknown, code: string, sentence: string) => asserts truth} */
export function must(truth, code, sentence) {
  if (!truth) throw new Problem(code, sentence);
}

/** Text of others for a sentence: in quotation marks, at most 32 characters, the odd ones escaped.
 * @type {(text: unknown) => string} */
export function quoted(text) {
  const shown = [...String(text)].slice(0, 32).join("");
  return message("wallet-script.quoted", { text: visible(shown.replace(/[^ -~\u00a1-\u05ff]/gu, escaped)) });
}
