// The network of the node: its name on the page, and at first use the genesis hash that its user was given.

import { coins, UNIT } from "./digits.mjs";
import { checkGiven, genesisIn } from "./genesis.mjs";
import { builtIn } from "./built-in.mjs";
import { byId, judged, onSubmit, show, write } from "./wallet-dom.mjs";

/** @import { Network } from "./networks.mjs" */
/** @import { Store } from "./wallet-store.mjs" */

/** Show the name of the network, its icon, its least fee and what it calls its coins.
 * @type {(network: Network) => void} */
export function showNetwork({ name, chainId, prefix, rules }) {
  const badge = byId("network");
  badge.hidden = false;
  badge.classList.add(name === "devnet" ? "warn" : "accent");
  write(badge, name === "mainnet" ? "Mainnet" : name === "devnet" ? "Devnet" : name);
  byId("review-network").className = badge.className;
  write(byId("review-network"), badge.textContent ?? "");
  write(byId("send-fee"), coins(rules.minimumFee));
  for (const name of document.querySelectorAll(".coin-name")) name.textContent = UNIT;
  if (builtIn(chainId)) return;
  // The node draws one for each letter; the page has that of svcd, so that it is the same page everywhere.
  const icon = `/static/icon-${prefix[0]}.svg`;
  document.querySelector("img")?.setAttribute("src", icon);
  document.querySelector("link[rel=icon]")?.setAttribute("href", icon);
}

/** Look whether the network is the one that the person was told of: by the link that opened the page, or else by the
 * genesis hash that is kept from before. If neither is there, it is typed, unless the network is built in. Without a
 * wallet it is kept then: a keyfile says itself which network it is of. Throws `genesis-hash` or `wrong-network`.
 * @type {(network: Network, store: Store, hasWallet: boolean) => Promise<void>} */
export async function confirmNetwork(network, store, hasWallet) {
  const { given, rest } = genesisIn(location.hash);
  if (given !== null) checkGiven(given, network);
  const held = given ?? (await store.genesisHash());
  if (!hasWallet && (held !== null || !builtIn(network.chainId))) {
    if (held !== network.genesisHash) await asked(network, held);
    await store.keepGenesisHash(network.genesisHash);
  }
  if (given !== null) history.replaceState(null, "", location.pathname + location.search + (rest && `#${rest}`));
}

/** Wait until the person has typed the genesis hash of the network; says at first what is wrong with the one held.
 * @type {(network: Network, held: string | null) => Promise<void>} */
function asked(network, held) {
  const field = byId("genesis-given", HTMLInputElement);
  write(byId("genesis-network"), network.name);
  show("genesis");
  return new Promise((resolve) => {
    onSubmit(byId("genesis-form"), byId("genesis-error"), () => {
      judged(field, (text) => checkGiven(text.toLowerCase(), network));
      resolve();
    });
    if (held === null) return;
    field.value = held;
    byId("genesis-form", HTMLFormElement).requestSubmit();
  });
}
