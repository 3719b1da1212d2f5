// Has the balance that the node names checked against the chain, in a worker that is loaded only for that.

import { UNIT } from "./digits.mjs";
import { idOf } from "./built-in.mjs";
import { Problem } from "./problem.mjs";
import { message } from "./texts.mjs";

/** @import { Account } from "./node.mjs" */
/** @import { Wallet } from "./wallet.mjs" */
/** @typedef {{ kind: "checked" | "line" | "problem", key: string, values: Record<string, string | number> }} Message with
 * its values: that the balance is right, another quiet line, or what is wrong, which stays until the balance is right. */
/** @typedef {{ kind: "ask", path: string } | Message} Told */

const SCRIPT = "/static/light-worker.mjs";

/** What is wrong with the balance of an address, until the balance is proven, whichever view is shown meanwhile.
 * @type {Map<string, Problem>} */
const wrong = new Map();

const policy = globalThis.trustedTypes?.createPolicy("svc-worker", { createScriptURL: () => SCRIPT });

/** Begin to check an account: `say` gets the quiet line, and what is wrong or null. Gives what checks a balance that
 * the node names, and what ends it.
 * @type {(app: Wallet, say: (line: string, problem: Problem | null) => void) =>
 *   { look: (claim: Account) => void, end: () => void }} */
export function startChecking({ node, network, keyfile }, say) {
  /** @type {Worker | null} */
  let worker = null;
  let broken = false;
  const { address } = keyfile;
  /** @type {(line: string) => void} */
  const sayLine = (line) => say(wrong.has(address) ? "" : line, wrong.get(address) ?? null);
  /** @type {(told: Message) => void} */
  const show = ({ kind, key, values }) => {
    const text = message(key, { unit: UNIT, ...values });
    if (kind === "problem") wrong.set(address, new Problem("unproved", text));
    if (kind === "checked") wrong.delete(address);
    sayLine(text);
  };
  sayLine("");
  const begin = () => {
    const begun = new Worker(/** @type {string} */ (policy?.createScriptURL(SCRIPT) ?? SCRIPT), { type: "module" });
    begun.onmessage = async ({ data }) => {
      const told = /** @type {Told} */ (data);
      if (told.kind === "ask") return begun.postMessage({ kind: "answer", ...(await node.text(told.path)) });
      broken = false;
      show(told);
    };
    begun.onerror = () => {
      // It was not loaded: the next look tries that again.
      begun.terminate();
      worker = null;
      const values = { reason: message("wallet-script.node-silent") };
      show({ kind: broken ? "problem" : "line", key: "wallet-script.unchecked", values });
      broken = true;
    };
    return begun;
  };
  return {
    look: ({ balance, nonce, tip }) => {
      // A hidden page loads nothing.
      if (worker === null && document.hidden) return;
      worker ??= begin();
      worker.postMessage({ kind: "check", network: idOf(network), address, balance, nonce, tip });
    },
    end: () => worker?.terminate(),
  };
}
