// Locking after five minutes in which nobody did anything in any tab.

/** After how many idle milliseconds a wallet is locked. */
export const IDLE_LIMIT = 5 * 60 * 1000;
const TELL_EVERY = 1_000;
/** By how many milliseconds a computer may set its clock back without locking the wallet. */
const STEP_BACK = 1_000;

/** Watches one tab: `clock` gives milliseconds, `channel` reaches the other tabs, `lock` forgets the secrets.
 *
 * Timers of hidden pages come late, and those of frozen pages and sleeping computers not at all, so what counts is the
 * time, looked at by `check`: by a timer, when the page is shown, and before the key is used. A clock that goes backwards
 * would make the minutes last for ever, so it locks.
 */
export class Idle {
  #clock;
  #channel;
  #lock;
  /** Whether there is something to lock. */
  #open = false;
  #last = 0;
  /** The latest time that the clock has shown. */
  #seen = 0;
  #told = 0;

  /** @param {() => number} clock
   * @param {BroadcastChannel} channel
   * @param {() => void} lock */
  constructor(clock, channel, lock) {
    this.#clock = clock;
    this.#channel = channel;
    this.#lock = lock;
    channel.addEventListener("message", ({ data }) => this.#heard(data));
  }

  /** Somebody did something here. What comes after the limit does not count any more: it locks. */
  active() {
    if (!this.#open || this.check()) return;
    const now = this.#clock();
    this.#last = now;
    if (now - this.#told < TELL_EVERY) return;
    this.#told = now;
    this.#channel.postMessage({ kind: "active", at: now });
  }

  /** Begin to count anew, when there is a secret on the page. */
  begin() {
    this.#open = true;
    this.#last = this.#seen = this.#told = this.#clock();
    this.#channel.postMessage({ kind: "active", at: this.#last });
  }

  /** Lock if nothing was done for too long, and have the other tabs check too; says whether it was so. */
  check() {
    if (!this.#isOver()) return false;
    this.#end();
    this.#channel.postMessage({ kind: "check" });
    return true;
  }

  /** Lock here and in all other tabs. */
  lockAll() {
    this.#channel.postMessage({ kind: "lock" });
    this.#end();
  }

  #isOver() {
    if (!this.#open) return false;
    const now = this.#clock();
    const back = now < this.#seen - STEP_BACK;
    this.#seen = Math.max(this.#seen, now);
    return back || now - this.#last >= IDLE_LIMIT;
  }

  #end() {
    this.#open = false;
    this.#lock();
  }

  /** @type {(message: { kind: string, at: number } | null) => void} */
  #heard(message) {
    // Another keyfile or password: a page that is hidden reloads only once it is shown.
    if (message?.kind === "lock" || message?.kind === "changed") this.#end();
    if (message?.kind === "check" && this.#isOver()) this.#end();
    // A time in the future would keep the wallet open for ever.
    if (message?.kind === "active" && Number.isFinite(message.at)) {
      this.#last = Math.min(Math.max(this.#last, message.at), this.#clock());
    }
  }
}
