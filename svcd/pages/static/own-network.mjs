// A network that is not built in, as the wallet's page needs it. It is loaded on such a network alone.

import { InvalidProof } from "./errors.mjs";
import { networkOfRules } from "./network-rules.mjs";

/** @import { Network } from "./networks.mjs" */

/** The network in an answer to GET /rpc/rules, whose genesis hash is computed; null if the answer makes no sense.
 * @type {(answer: Record<string, unknown>) => Promise<Network | null>} */
export async function ownNetwork({ rules, changes }) {
  try {
    return await networkOfRules(rules, changes);
  } catch (problem) {
    if (problem instanceof InvalidProof) return null;
    throw problem;
  }
}
