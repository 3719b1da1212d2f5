// Asking again and again, but not while nobody looks.

/** @typedef {() => Promise<boolean | number | void>} Work */

const EVERY = 2_000;
const SLOWEST = 30_000;

/** Runs `work` at once and then every 2 seconds, up to every 30 while it fails, and not while the page is hidden.
 *
 * `work` gives true when there is nothing left to ask, or the milliseconds until the next time; `failed` is told what
 * it throws. `page` is the document. `network` has the event `online`, which ends the wait after a failure.
 */
export class Poller {
  /** @type {Work} */
  #work;
  /** @type {(problem: unknown) => void} */
  #failed;
  #page;
  #network;
  #timers;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer = undefined;
  #wait = EVERY;
  #running = false;
  #ended = false;
  #shown = () => this.#wake();

  /** @param {Work} work
   * @param {(problem: unknown) => void} failed
   * @param {Document} page
   * @param {Pick<typeof globalThis, "setTimeout" | "clearTimeout">} timers
   * @param {EventTarget} network */
  constructor(work, failed, page = document, timers = globalThis, network = globalThis) {
    this.#work = work;
    this.#failed = failed;
    this.#page = page;
    this.#network = network;
    this.#timers = timers;
    page.addEventListener("visibilitychange", this.#shown);
    network.addEventListener?.("online", this.#shown);
  }

  /** Ask now. */
  async ask() {
    if (this.#running || this.#ended) return;
    this.#timers.clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#running = true;
    try {
      const next = await this.#work();
      this.#wait = typeof next === "number" ? next : EVERY;
      if (next === true) this.end();
    } catch (problem) {
      this.#wait = Math.min(Math.max(this.#wait, EVERY) * 2, SLOWEST);
      if (!this.#ended) this.#failed(problem);
    } finally {
      this.#running = false;
    }
    this.#later();
  }

  /** Ask no more. */
  end() {
    this.#ended = true;
    this.#timers.clearTimeout(this.#timer);
    this.#page.removeEventListener("visibilitychange", this.#shown);
    this.#network.removeEventListener?.("online", this.#shown);
  }

  #later() {
    if (!this.#ended && !this.#page.hidden) this.#timer = this.#timers.setTimeout(() => this.ask(), this.#wait);
  }

  #wake() {
    if (this.#page.hidden) {
      this.#timers.clearTimeout(this.#timer);
      this.#timer = undefined;
    } else {
      this.#wait = EVERY;
      this.ask();
    }
  }
}
