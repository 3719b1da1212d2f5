// Locking after five minutes in which nobody did anything in any tab.

/** After how many idle milliseconds a wallet is locked. */
export const IDLE_LIMIT = 5 * 60 * 1000;
const TELL_EVERY = 1_000;

/** Watches one tab: `clock` gives milliseconds, `channel` reaches the other tabs, `lock` forgets the key.
 *
 * Timers of hidden pages come late and sleeping computers stop them, so what counts is the time, looked at by `check`.
 */
export class Idle {
  #clock;
  #channel;
  #lock;
  #last;
  #told = 0;

  /** @param {() => number} clock
   * @param {BroadcastChannel} channel
   * @param {() => void} lock */
  constructor(clock, channel, lock) {
    this.#clock = clock;
    this.#channel = channel;
    this.#lock = lock;
    this.#last = clock();
    channel.addEventListener("message", ({ data }) => this.#heard(data));
  }

  /** Somebody did something here. What comes after the limit does not count any more: it locks. */
  active() {
    if (this.check()) return;
    const now = this.#clock();
    this.#last = now;
    if (now - this.#told < TELL_EVERY) return;
    this.#told = now;
    this.#channel.postMessage({ kind: "active", at: now });
  }

  /** Begin to count anew, when the wallet is unlocked. */
  begin() {
    this.#last = this.#clock();
    this.#channel.postMessage({ kind: "active", at: this.#last });
  }

  /** Lock if nothing was done for too long; says whether it was so. */
  check() {
    const over = this.#clock() - this.#last >= IDLE_LIMIT;
    if (over) this.#lock();
    return over;
  }

  /** Lock here and in all other tabs. */
  lockAll() {
    this.#channel.postMessage({ kind: "lock" });
    this.#lock();
  }

  /** @type {(message: { kind: string, at: number } | null) => void} */
  #heard(message) {
    if (message?.kind === "lock") this.#lock();
    // A time in the future would keep the wallet open for ever.
    if (message?.kind === "active" && Number.isFinite(message.at)) {
      this.#last = Math.min(Math.max(this.#last, message.at), this.#clock());
    }
  }
}
