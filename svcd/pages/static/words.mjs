// The words that a person types, with the page's sentences.

import { must, Problem, quoted } from "./problem.mjs";
import { message } from "./texts.mjs";

/** @typedef {typeof import("./mnemonic.mjs")} Mnemonic which is loaded when it is needed: the first view does not. */

/** The words that a person typed, in lower case; throws `words` if they are not 24 words that fit together.
 * @type {(text: string, list: string[], mnemonic: Mnemonic) => Promise<string[]>} */
export async function readWords(text, list, { faultIn, WORD_COUNT, wordsIn }) {
  const words = wordsIn(text);
  const fault = await faultIn(words, list);
  if (typeof fault === "number") {
    const word = quoted(words[fault]);
    throw new Problem("words", message("wallet-script.word-unknown", { place: fault + 1, word }));
  }
  must(fault !== "count", "words", message("wallet-script.word-count", { count: words.length, needed: WORD_COUNT }));
  must(fault === null, "words", message("wallet-script.words-unfit"));
  return words;
}
