// Keeps the checkout page up to date without reloading it. All words stand in the page; this shows the right ones.

const FIRST_DELAY = 2000;
const LONGEST_DELAY = 30000;
const DEADLINE = 10000;

/** Milliseconds until the next question: two seconds, and longer each time the node has not answered. */
export function delayAfter(failures) {
  return Math.min(FIRST_DELAY * 2 ** Math.min(failures, 10), LONGEST_DELAY);
}

/** What the page shows of a verification result, as plain values. */
export function viewOf(payment) {
  const required = payment.requiredConfirmations;
  return {
    state: payment.state,
    confirmations: String(payment.confirmations),
    progress: Math.min(payment.confirmations, required),
    final: payment.state === "confirmed",
    txid: payment.txid ?? "",
    twice: payment.matchCount > 1,
    mismatches: payment.mismatches.map((each) => ({ coins: each.amountSvc, txid: each.txid })),
  };
}

/** Write a view into the page; what is the same already is left alone, so that it is not read out again. */
export function show(root, view) {
  const page = root.ownerDocument;
  if (root.dataset.state !== view.state) {
    root.dataset.state = view.state;
  }
  for (const part of root.querySelectorAll("[data-when]")) {
    setHidden(part, !part.dataset.when.split(" ").includes(view.state));
  }
  setText(root.querySelector('[data-fill="confirmations"]'), view.confirmations);
  root.querySelector('[data-fill="progress"]').value = view.progress;
  const transfer = root.querySelector('[data-fill="transfer"]');
  setHidden(transfer.parentElement, !view.txid);
  if (view.txid) {
    transfer.setAttribute("href", `/tx/${view.txid}`);
  }
  setHidden(root.querySelector("[data-twice]"), !view.twice);
  showMismatches(root, page.getElementById("mismatch"), view.mismatches);
}

function showMismatches(root, sample, mismatches) {
  const list = root.querySelector('[data-fill="mismatches"]');
  const shown = mismatches.map((each) => each.txid).join(" ");
  if (list.dataset.shown !== shown) {
    list.dataset.shown = shown;
    list.replaceChildren(
      ...mismatches.map((each) => {
        const item = sample.content.firstElementChild.cloneNode(true);
        item.querySelector('[data-fill="coins"]').textContent = each.coins;
        item.querySelector("a").setAttribute("href", `/tx/${each.txid}`);
        return item;
      }),
    );
  }
  setHidden(root.querySelector("[data-misses]"), mismatches.length === 0);
}

function setHidden(element, hidden) {
  if (element.hidden !== hidden) {
    element.hidden = hidden;
  }
}

function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(DEADLINE) });
  const body = await answer.json();
  if (!body.ok) {
    throw new Error(body.error);
  }
  return viewOf(body.payment);
}

/** Ask until the payment is final; rest while nobody looks, and ask at once when somebody looks again. */
export class Watch {
  #root;
  #ask;
  #timer = null;
  #failures = 0;
  #asking = false;
  #final = false;

  constructor(root, { asked = ask } = {}) {
    this.#root = root;
    this.#ask = asked;
    this.#final = root.dataset.state === "confirmed";
    root.ownerDocument.addEventListener("visibilitychange", () => this.#look());
    this.#plan();
  }

  #look() {
    clearTimeout(this.#timer);
    if (!this.#root.ownerDocument.hidden) {
      this.#once();
    }
  }

  #plan() {
    clearTimeout(this.#timer);
    if (!this.#final && !this.#root.ownerDocument.hidden) {
      this.#timer = setTimeout(() => this.#once(), delayAfter(this.#failures));
    }
  }

  async #once() {
    if (this.#asking || this.#final) {
      return;
    }
    this.#asking = true;
    try {
      const view = await this.#ask(this.#root.dataset.status);
      this.#failures = 0;
      this.#final = view.final;
      show(this.#root, view);
    } catch {
      this.#failures += 1;
    }
    this.#asking = false;
    setHidden(this.#root.querySelector("[data-trouble]"), this.#failures < 2);
    this.#plan();
  }
}

const root = globalThis.document?.getElementById("payment");
if (root) {
  new Watch(root);
}
