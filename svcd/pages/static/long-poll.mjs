// Questions that wait at the node until something changes there.

/** Milliseconds before the next question after one that waited. */
export const PAUSE = 100;
/** Milliseconds for an answer, beyond what the node may wait. */
const DEADLINE = 10_000;
/** How many questions do not wait after one that was not let wait: half a minute, if one is asked every two seconds. */
const PLAIN = 15;

/** The first question is answered at once. Each further one waits at the node; where the node, or a proxy in between, does
 * not let it wait, some are asked without. A page that is hidden ends its wait: a browser has only six connections to a
 * node. `page` is the document. */
export class LongPoll {
  #page;
  #plain = 1;
  #asking = new AbortController();
  #hidden = () => this.#page.hidden && this.#asking.abort();

  /** @param {Document} page */
  constructor(page = document) {
    this.#page = page;
    page.addEventListener("visibilitychange", this.#hidden);
  }

  /** Whether the next question does not wait. */
  get isPlain() {
    return this.#plain > 0;
  }

  /** What `question` gives, which may wait so many seconds at most; null if it could not wait, so that the next one will not.
   * @template T
   * @param {number} longest
   * @param {(options: { wait: number, signal: AbortSignal }) => Promise<T>} question
   * @returns {Promise<T | null>} */
  async ask(longest, question) {
    const wait = this.isPlain ? 0 : longest;
    this.#plain = Math.max(this.#plain - 1, 0);
    const asking = new AbortController();
    this.#asking = asking;
    const deadline = setTimeout(() => asking.abort(), DEADLINE + wait * 1000);
    try {
      return await question({ wait, signal: asking.signal });
    } catch (problem) {
      this.#plain = Math.max(this.#plain, wait > 0 && !this.#page.hidden ? PLAIN : 1);
      if (wait > 0 || this.#page.hidden) return null;
      throw problem;
    } finally {
      clearTimeout(deadline);
    }
  }

  /** Let the next question be answered at once. */
  hurry() {
    this.#plain = 1;
  }

  /** Ask no more: what waits is ended. */
  end() {
    this.#page.removeEventListener("visibilitychange", this.#hidden);
    this.#asking.abort();
  }
}
