// New passwords: the lists that their judgement needs, which are loaded only when one is chosen.

import { textOf } from "./answers.mjs";
import { loaded } from "./node.mjs";
import { message } from "./texts.mjs";
import { Problem } from "./problem.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Mnemonic } from "./words.mjs" */
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
    return await read(await textOf(response));
  } catch (problem) {
    if (problem instanceof Problem) throw problem;
    throw new Problem("node-unreachable", message("wallet-script.no-word-list"));
  }
}

/** The word list of BIP-39 and the module that reads words; throws `node-unreachable`.
 *
 * What judges passwords is loaded with them: not every browser loads a script again after a failure, and a person who has
 * written down words must not be stopped at the password.
 * @type {() => Promise<{ list: string[], mnemonic: Mnemonic }>} */
export const fetchWords = () =>
  fetched(PATHS.words, async (text) => {
    const [mnemonic] = await loaded(Promise.all([import("./mnemonic.mjs"), import("./passwords.mjs")]));
    return { list: await mnemonic.wordList(text), mnemonic };
  });

/** Throw `password-short` or `password-weak` if a new password is easy to guess.
 * @type {(password: string) => Promise<void>} */
export async function checkPassword(password) {
  const { weakness, least } = await fetched(PATHS.common, async (text) => {
    const { judge, MIN_LENGTH, ranksIn } = await loaded(import("./passwords.mjs"));
    return { ...judge(password, ranksIn(text)), least: MIN_LENGTH };
  });
  if (weakness === null) return;
  const { list } = await fetchWords();
  const words = Array.from(new Uint16Array(random(2 * ADVISED_WORDS).buffer), (value) => list[value % list.length]);
  throw problemOf(weakness, { count: [...password.normalize("NFC")].length, least }, words.join(" "));
}

/** @type {(weakness: Weakness, length: { count: number, least: number }, words: string) => Problem} */
function problemOf(weakness, { count, least }, words) {
  if (weakness === "short") {
    const sentence = message("wallet-script.password-short", { count, least, words });
    return new Problem("password-short", sentence);
  }
  const sentences = {
    invisible: () => message("wallet-script.password-invisible"),
    repeated: () => message("wallet-script.password-repeated", { words }),
    sequential: () => message("wallet-script.password-sequential", { words }),
    common: () => message("wallet-script.password-common", { words }),
    guessable: () => message("wallet-script.password-guessable", { words }),
  };
  return new Problem("password-weak", sentences[weakness]());
}
