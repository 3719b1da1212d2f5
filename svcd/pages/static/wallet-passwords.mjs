// New passwords: the lists that their judgement needs, which are loaded only when one is chosen.

import { message } from "./texts.mjs";
import { wordList } from "./mnemonic.mjs";
import { judge, MIN_LENGTH, ranksIn } from "./passwords.mjs";
import { Problem } from "./problem.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Weakness } from "./passwords.mjs" */

const ADVISED_WORDS = 6;
const PATHS = { words: "/static/bip39-english.txt", common: "/static/common-passwords.txt" };

/** Random bytes.
 * @type {(size: number) => Bytes} */
export const random = (size) => crypto.getRandomValues(new Uint8Array(size));

/** The text of a list; throws `node-unreachable`, as `read` may with any error.
 * @template T
 * @param {string} path
 * @param {(text: string) => T} read
 * @returns {Promise<Awaited<T>>} */
async function fetched(path, read) {
  try {
    const response = await fetch(path, { signal: AbortSignal.timeout(10_000) });
    if (!response.ok) throw new RangeError(`status ${response.status}`);
    return await read(await response.text());
  } catch {
    throw new Problem("node-unreachable", message("wallet-script.no-word-list"));
  }
}

/** The word list of BIP-39; throws `node-unreachable`.
 * @type {() => Promise<string[]>} */
export const fetchWordList = () => fetched(PATHS.words, wordList);

/** Throw `password-short` or `password-weak` if a new password is easy to guess.
 * @type {(password: string) => Promise<void>} */
export async function checkPassword(password) {
  const { weakness } = judge(password, await fetched(PATHS.common, ranksIn));
  if (weakness === null) return;
  const list = await fetchWordList();
  const words = Array.from(new Uint16Array(random(2 * ADVISED_WORDS).buffer), (value) => list[value % list.length]);
  throw problemOf(weakness, [...password.normalize("NFC")].length, words.join(" "));
}

/** @type {(weakness: Weakness, count: number, words: string) => Problem} */
function problemOf(weakness, count, words) {
  if (weakness === "short") {
    const sentence = message("wallet-script.password-short", { count, least: MIN_LENGTH, words });
    return new Problem("password-short", sentence);
  }
  const sentences = {
    repeated: () => message("wallet-script.password-repeated", { words }),
    sequential: () => message("wallet-script.password-sequential", { words }),
    common: () => message("wallet-script.password-common", { words }),
    guessable: () => message("wallet-script.password-guessable", { words }),
  };
  return new Problem("password-weak", sentences[weakness]());
}
