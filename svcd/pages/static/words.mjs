// The word list as the node serves it, and the words that a person types, with the page's sentences.

import { hexOf, sha256, utf8 } from "./bytes.mjs";
import { faultIn, WORD_COUNT, wordsIn } from "./mnemonic.mjs";
import { must, Problem, quoted } from "./problem.mjs";
import { message } from "./texts.mjs";

/** Of bip-0039/english.txt in the repository of the BIPs: another list derives other keys. */
const LIST_SHA256 = "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda";

/** The words of the list's text, one on each line; rejects with RangeError if it is not the published list.
 * @type {(text: string) => Promise<string[]>} */
export async function wordList(text) {
  if (hexOf(await sha256(utf8(text))) !== LIST_SHA256) throw new RangeError("not the word list of BIP-39");
  return text.trim().split("\n");
}

/** The words that a person typed, in lower case; throws `words` if they are not 24 words that fit together.
 * @type {(text: string, list: string[]) => Promise<string[]>} */
export async function readWords(text, list) {
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
