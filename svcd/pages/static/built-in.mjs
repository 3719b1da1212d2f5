// Which networks are built in, and how a page and a keyfile call a network.

import { NETWORKS } from "./networks.mjs";

/** @import { Network } from "./networks.mjs" */

/** The built-in network with this chainId; undefined for another.
 * @type {(chainId: unknown) => Network | undefined} */
export const builtIn = (chainId) => Object.values(NETWORKS).find((network) => network.chainId === chainId);

/** What a keyfile calls a network: names other than the built-in ones say nothing elsewhere.
 * @type {(network: Network) => string} */
export const idOf = ({ name, chainId, genesisHash }) => (builtIn(chainId) ? name : genesisHash);

/** The seconds between blocks, on average.
 * @type {(network: Network) => number} */
export const blockSeconds = ({ rules }) => Number(rules.slotSeconds * rules.slotsPerBlock);
