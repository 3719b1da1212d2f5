// The views before a wallet is open: create, bring, unlock.

import { message } from "./texts.mjs";
import { byId, download, element, onClick, onSubmit, show, tell, ticked, write } from "./wallet-dom.mjs";
import { calibrated, outdated, parse, render, reseal, seal, unseal } from "./keyfile.mjs";
import { must, Problem } from "./problem.mjs";
import { checkPassword, fetchWords, random } from "./wallet-passwords.mjs";
import { readWords } from "./words.mjs";

/** @import { Keyfile } from "./keyfile.mjs" */
/** @import { Mnemonic } from "./words.mjs" */
/** @import { Wallet } from "./wallet.mjs" */

const QUESTIONS = 3;
const MAX_FILE = 65_536;

/** Places of the words that are asked for, of so many: different ones, in their order, none of which can be foreseen.
 * @type {(count: number) => number[]} */
function questions(count) {
  /** @type {Set<number>} */
  const places = new Set();
  // The last of 256 values would make some places more likely than others.
  const fair = 256 - (256 % count);
  while (places.size < QUESTIONS) for (const byte of random(1)) if (byte < fair) places.add(byte % count);
  return [...places].sort((one, other) => one - other);
}

/** Offer the keyfile of the wallet for download.
 * @param {{ keyfile: Keyfile }} app
 * @param {HTMLElement | null} live */
export function downloadKeyfile({ keyfile }, live = null) {
  download(`${String(keyfile.address).slice(0, 14)}-keyfile.json`, render(keyfile));
  if (live) write(live, message("wallet-script.keyfile-handed"));
}

/** Say that the browser may delete the wallet, unless it promises to keep it.
 * @type {(where: HTMLElement, kept: Promise<boolean> | undefined) => Promise<void>} */
export async function tellStorage(where, kept) {
  where.hidden = true;
  where.hidden = (await kept) === true;
}

/** The words of a wallet that is being made, from their first sight to the sealed keyfile. */
export class Creating {
  #app;
  /** @type {Mnemonic | null} */
  #mnemonic = null;
  /** @type {string[]} */
  #words = [];
  /** @type {number[]} */
  #places = [];

  /** @param {Wallet} app */
  constructor(app) {
    this.#app = app;
    onClick(byId("words-done"), () => this.#quiz());
    onClick(byId("quiz-back"), () => this.#showWords());
    onSubmit(byId("quiz-form"), byId("quiz-error"), () => this.#check());
    onSubmit(byId("password-form"), byId("password-error"), () => this.#seal());
    onClick(byId("download-keyfile"), () => downloadKeyfile(app, byId("keyfile-live")));
    onClick(byId("keyfile-done"), () => app.go("", { replace: true }));
    onSubmit(byId("import-words-form"), byId("import-words-error"), () => this.#bring());
  }

  /** Make new words and show them. */
  async begin() {
    const { list, mnemonic } = await fetchWords();
    this.#mnemonic = mnemonic;
    this.#words = await mnemonic.wordsOf(random(32), list);
    this.#showWords();
  }

  /** Forget the words, even those that the page shows. */
  forget() {
    this.#words = [];
    byId("words").replaceChildren();
    for (const id of ["quiz-form", "password-form", "import-words-form"]) byId(id, HTMLFormElement).reset();
    for (const id of ["quiz-error", "password-error", "import-words-error"]) tell(byId(id), null);
  }

  #showWords() {
    byId("words").replaceChildren(...this.#words.map((word) => element("li", { textContent: word })));
    show("words");
  }

  #quiz() {
    byId("words").replaceChildren();
    this.#places = questions(this.#words.length);
    this.#places.forEach((place, index) => {
      const field = byId(`quiz-${index + 1}`, HTMLInputElement);
      field.value = "";
      field.dataset.place = String(place + 1);
      if (field.labels) write(field.labels[0], message("wallet-script.word", { place: place + 1 }));
    });
    show("quiz");
  }

  #check() {
    this.#places.forEach((place, index) => {
      const field = byId(`quiz-${index + 1}`, HTMLInputElement);
      if (field.value.trim().toLowerCase() === this.#words[place]) return;
      const problem = new Problem("quiz", message("wallet-script.word-wrong", { place: place + 1 }));
      throw Object.assign(problem, { field });
    });
    show("password");
  }

  async #bring() {
    const { list, mnemonic } = await fetchWords();
    this.#mnemonic = mnemonic;
    this.#words = await readWords(byId("import-words", HTMLTextAreaElement).value, list, mnemonic);
    byId("import-words", HTMLTextAreaElement).value = "";
    show("password");
  }

  async #seal() {
    const [words, mnemonic] = [this.#words, /** @type {Mnemonic} */ (this.#mnemonic)];
    const password = byId("new-password", HTMLInputElement).value;
    const again = byId("new-password-again", HTMLInputElement).value;
    await checkPassword(password);
    must(password === again, "password-mismatch", message("wallet-script.passwords-differ"));
    const seed = await mnemonic.seedOfWords(words);
    const keyfile = await seal(seed, password, this.#app.network, random, await calibrated());
    seed.fill(0);
    const key = await unseal(keyfile, password);
    // Meanwhile the page may have been locked, which forgets them.
    must(this.#words === words, "locked", message("wallet-script.locked"));
    await this.#app.adopt(keyfile, key);
    this.forget();
    show("keyfile");
  }
}

/** Wire the form that takes a keyfile.
 * @type {(app: Wallet) => void} */
export function wireKeyfile(app) {
  onSubmit(byId("import-file-form"), byId("import-file-error"), async () => {
    const [file = null] = byId("import-file", HTMLInputElement).files ?? [];
    must(file, "damaged-keyfile", message("wallet-script.choose-keyfile"));
    must(file.size <= MAX_FILE, "damaged-keyfile", message("wallet-script.keyfile-large"));
    const keyfile = await parse(await file.text(), app.network);
    try {
      const password = byId("import-password", HTMLInputElement).value;
      const key = await unseal(keyfile, password);
      await app.adopt(outdated(keyfile) ? await reseal(keyfile, password, password, random) : keyfile, key);
    } catch (problem) {
      if (problem instanceof Problem && problem.code === "wrong-password") {
        problem.field = byId("import-password", HTMLInputElement);
      }
      throw problem;
    }
    byId("import-file-form", HTMLFormElement).reset();
    app.go("", { replace: true });
  });
}

/** Seal a keyfile of fewer rounds as new ones are, under the same password; it stays as it is if the browser cannot store that.
 * @type {(app: Wallet, password: string) => Promise<void>} */
async function renew(app, password) {
  const keyfile = await reseal(app.keyfile, password, password, random);
  try {
    await app.replace(keyfile);
  } catch (problem) {
    if (!(problem instanceof Problem && problem.code === "no-storage")) throw problem;
  }
}

/** Wire the form that unlocks.
 * @type {(app: Wallet) => void} */
export function wireUnlock(app) {
  onSubmit(byId("unlock-form"), byId("unlock-error"), async () => {
    const field = byId("unlock-password", HTMLInputElement);
    const key = await unseal(app.keyfile, field.value);
    if (outdated(app.keyfile)) await renew(app, field.value);
    field.value = "";
    app.unlocked(key);
  });
  onClick(
    byId("forgot-remove"),
    async () => {
      if (ticked(byId("forgot-confirm", HTMLInputElement), byId("forgot-error"))) await app.remove();
    },
    (problem) => tell(byId("forgot-error"), problem),
  );
}

/** Show the view that asks for the password.
 * @type {(app: Wallet) => void} */
export function showUnlock({ keyfile, link }) {
  write(byId("unlock-address"), keyfile.address);
  byId("unlock-user", HTMLInputElement).value = keyfile.address;
  byId("unlock-password", HTMLInputElement).value = "";
  byId("unlock-link").hidden = link === null;
  byId("forgot-confirm", HTMLInputElement).checked = false;
  tell(byId("forgot-error"), null);
  show("unlock");
}
