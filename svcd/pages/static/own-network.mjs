// A network that is not built in, as the wallet's page needs it. It is loaded on such a network alone.

import { InvalidProof } from "./errors.mjs";
import { networkOfRules } from "./network-rules.mjs";
import { decimal } from "./strict-json.mjs";

/** @import { Network } from "./networks.mjs" */

/** The network in an answer to GET /rpc/rules, whose genesis hash is computed; null if the answer makes no sense.
 * @type {(answer: Record<string, unknown>) => Promise<Network | null>} */
export async function ownNetwork({ rules: told, changes }) {
  try {
    const { rules, ...network } = await networkOfRules(told, changes);
    const { accountMinimum } = /** @type {Record<string, unknown>} */ (told);
    return {
      ...network,
      blockSeconds: Number(rules.slotSeconds * rules.slotsPerBlock),
      slotSeconds: Number(rules.slotSeconds),
      futureSeconds: Number(rules.transactionFutureSeconds),
      lifetime: 1000 * Number(rules.transactionPastSeconds),
      genesisTime: Number(rules.genesisTime),
      minimumFee: rules.minimumFee,
      accountMinimum: decimal(accountMinimum, "accountMinimum"),
    };
  } catch (problem) {
    if (problem instanceof InvalidProof) return null;
    throw problem;
  }
}
