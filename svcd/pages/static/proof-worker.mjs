// The worker that checks the file of a payment proof. It has no network.

import { argon2id } from "./argon2.mjs";
import { evaluating } from "./chain-proof.mjs";
import { networkOfRules } from "./network-rules.mjs";
import { provenPayment } from "./proof-file.mjs";
import { InvalidProof } from "./errors.mjs";

/** @import { Asked, Told } from "./proof.mjs" */

/** @type {(told: Told) => void} */
const tell = (told) => postMessage(told);

const evaluate = evaluating(argon2id);

/** @type {(done: number, total: number) => void} */
const progress = (done, total) => tell({ kind: "progress", done, total });

addEventListener("message", async ({ data }) => {
  try {
    const { text, told } = /** @type {Asked} */ (data);
    const own = told === null ? undefined : await networkOfRules(told.rules, told.changes);
    const payment = await provenPayment(text, { evaluate, progress, clock: Date.now, own });
    tell({ kind: "proven", payment });
  } catch (problem) {
    const reason = problem instanceof Error ? problem.message : String(problem);
    tell({ kind: problem instanceof InvalidProof ? "refused" : "failed", reason });
  }
});
