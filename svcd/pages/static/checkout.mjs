// Keeps the checkout page up to date without reloading it. All words stand in the page; this shows the right ones.

import { Poller } from "./polling.mjs";

const DEADLINE = 10000;
const PATIENCE = 2;

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

/** Ask until the payment is final; the poller rests while nobody looks. Gives the poller, or null for a final one. */
export function watch(root, { asked = ask, timers = globalThis } = {}) {
  if (root.dataset.state === "confirmed") {
    return null;
  }
  const trouble = root.querySelector("[data-trouble]");
  let failures = 0;

  async function once() {
    const view = await asked(root.dataset.status);
    failures = 0;
    setHidden(trouble, true);
    show(root, view);
    return view.final;
  }

  function failed() {
    failures += 1;
    setHidden(trouble, failures < PATIENCE);
  }

  const poller = new Poller(once, failed, root.ownerDocument, timers);
  poller.ask();
  return poller;
}

const root = globalThis.document?.getElementById("payment");
if (root) {
  watch(root);
}
