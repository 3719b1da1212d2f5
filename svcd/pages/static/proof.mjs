// Has the file of a payment proof checked in a worker. All words are in the page; this shows the right ones.

import { coins, grouped } from "./digits.mjs";
import { localTime } from "./texts.mjs";

/** @import { ProvenPayment } from "./proof-file.mjs" */
/** @typedef {{ kind: "progress", done: number, total: number } | { kind: "proven", payment: ProvenPayment }
 *   | { kind: "refused" | "failed", reason: string }} Told by the worker. */

const SCRIPT = "/static/proof-worker.mjs";
/** Bytes of a file above which its beginning alone is read, which is then refused. */
const MOST = 4 * 1024 * 1024 + 1;

const policy = globalThis.trustedTypes?.createPolicy("svc-worker", { createScriptURL: () => SCRIPT });

/** The rules of a network of somebody's own and its changes of producers, as GET /rpc/rules has them.
 * @typedef {{ rules: unknown, changes: unknown }} ToldNetwork */
/** @typedef {{ text: string, told: ToldNetwork | null }} Asked The text of the file, and the network of the node unless
 * it is built in. */

/** What the page shows of a proven payment, by the names of its places.
 * @type {(payment: ProvenPayment) => Record<string, string>} */
function shownOf(payment) {
  const { chainId, txid, amount, sender, recipient, reference } = payment;
  const { blockHash, height, confirmations, head, time, producers } = payment;
  return {
    network: chainId,
    amount: coins(amount),
    recipient,
    reference: reference ?? "–",
    sender,
    txid,
    block: `${grouped(height)}, ${blockHash}`,
    confirmations: grouped(confirmations),
    tip: `${grouped(head.height)}, ${head.hash}`,
    "tip-time": localTime(time),
    work: grouped(head.work),
    together: grouped(Math.floor(producers / 2) + 1),
    listed: grouped(producers),
  };
}

/** @type {(page: HTMLElement, chosen: HTMLInputElement) => void} */
function start(page, chosen) {
  const genesis = document.getElementById("proof-genesis");
  const byWork = document.getElementById("proof-by-work");
  const byProducers = document.getElementById("proof-by-producers");
  const { network } = page.dataset;
  const told = network === undefined ? null : /** @type {ToldNetwork} */ (JSON.parse(network));
  /** @type {Worker | null} */
  let worker = null;
  /** @type {(view: string, values?: Record<string, string>) => void} */
  const show = (view, values = {}) => {
    for (const [name, value] of Object.entries(values))
      for (const place of page.querySelectorAll(`[data-fill="${name}"]`)) place.textContent = value;
    for (const each of page.querySelectorAll("[data-view]"))
      if (each instanceof HTMLElement) each.hidden = each.dataset.view !== view;
    page.dataset.shown = view;
  };
  /** @type {(told: Told) => void} */
  const hear = (told) => {
    if (told.kind === "progress") {
      const bar = page.querySelector("progress");
      if (bar) [bar.max, bar.value] = [told.total, told.done];
    } else if (told.kind === "proven") {
      const { ownGenesis, producers } = told.payment;
      if (genesis) genesis.hidden = ownGenesis === null;
      if (byWork) byWork.hidden = producers > 0;
      if (byProducers) byProducers.hidden = producers === 0;
      show("proven", { ...shownOf(told.payment), "genesis-hash": ownGenesis ?? "" });
    } else show(told.kind, { reason: told.reason });
  };
  chosen.addEventListener("change", async () => {
    const [file] = chosen.files ?? [];
    worker?.terminate();
    if (file === undefined) return show("");
    show("checking");
    const begun = new Worker(/** @type {string} */ (policy?.createScriptURL(SCRIPT) ?? SCRIPT), { type: "module" });
    worker = begun;
    begun.onmessage = ({ data }) => hear(/** @type {Told} */ (data));
    begun.onerror = () => show("failed", { reason: "" });
    begun.postMessage(/** @type {Asked} */ ({ text: await file.slice(0, MOST).text(), told }));
  });
  chosen.disabled = false;
}

const page = globalThis.document?.getElementById("proof");
const chosen = globalThis.document?.getElementById("proof-file");
if (page && chosen instanceof HTMLInputElement) start(page, chosen);
