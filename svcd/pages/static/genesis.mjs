// The genesis hash that a person was given of a network: it alone says which network is meant (docs/own-network.md).

import { must } from "./problem.mjs";
import { message } from "./texts.mjs";

/** @import { Network } from "./networks.mjs" */

const MEMBER = "network=";

/** The genesis hash in a fragment of the wallet's address, `network=HASH`, or null, and the fragment without it.
 * @type {(hash: string) => { given: string | null, rest: string }} */
export function genesisIn(hash) {
  const pairs = hash.replace(/^#/, "").split("&");
  const rest = pairs.filter((pair) => !pair.startsWith(MEMBER));
  const found = pairs.find((pair) => pair.startsWith(MEMBER));
  return { given: found?.slice(MEMBER.length) ?? null, rest: rest.join("&") };
}

/** Throw `genesis-hash` unless a text is a genesis hash, and `wrong-network` unless it is that of the network.
 * @type {(given: string, network: Network) => void} */
export function checkGiven(given, { name, genesisHash: hash }) {
  must(/^[0-9a-f]{64}$/.test(given), "genesis-hash", message("wallet-script.genesis-form"));
  must(given === hash, "wrong-network", message("wallet-script.genesis-other", { name, hash, given }));
}
