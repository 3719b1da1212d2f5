// Whether somebody looks at the page: if not, it asks the node nothing, but for what the person has just begun.

import { Problem } from "./problem.mjs";
import { message } from "./texts.mjs";

/** Lets questions wait while the page is hidden; `page` is the document. */
export class Attention {
  #page;
  #urgent = 0;
  /** @type {Set<{ go: () => void, end: (problem: Problem) => void }>} */
  #waiting = new Set();

  /** @param {Document} page */
  constructor(page) {
    this.#page = page;
    page.addEventListener("visibilitychange", () => this.#look());
  }

  /** Wait until a question may be asked; throws `locked` if it is not to be asked any more.
   * @type {() => Promise<void>} */
  ready() {
    if (this.#mayAsk()) return Promise.resolve();
    return new Promise((go, end) => this.#waiting.add({ go, end }));
  }

  /** Do `work`, whose questions do not wait.
   * @template T
   * @param {() => Promise<T>} work
   * @returns {Promise<T>} */
  async urgently(work) {
    this.#urgent += 1;
    this.#look();
    try {
      return await work();
    } finally {
      this.#urgent -= 1;
    }
  }

  /** The page is locked: what waits is not asked any more. */
  forget() {
    for (const { end } of this.#waiting) end(new Problem("locked", message("wallet-script.locked")));
    this.#waiting.clear();
  }

  /** Load the page anew, once somebody looks at it. */
  reload() {
    if (!this.#page.hidden) location.reload();
    else this.#page.addEventListener("visibilitychange", () => location.reload(), { once: true });
  }

  #mayAsk() {
    return !this.#page.hidden || this.#urgent > 0;
  }

  #look() {
    if (!this.#mayAsk()) return;
    for (const { go } of this.#waiting) go();
    this.#waiting.clear();
  }
}
