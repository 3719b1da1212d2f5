// Addresses that a person or a link gives, with the page's sentences.

import { CHECKSUM_SYMBOLS, KEY_SYMBOLS, SYMBOLS } from "./bech32.mjs";
import { keyOf } from "./key-hash.mjs";
import { NETWORKS } from "./networks.mjs";
import { must, quoted } from "./problem.mjs";
import { message } from "./texts.mjs";

/** @import { Network } from "./networks.mjs" */

/** Throw `network` or `address` unless `text` is an address of `network`, in the one form that addresses have.
 * @type {(text: string, network: Network) => void} */
export function checkAddress(text, network) {
  for (const other of Object.values(NETWORKS)) {
    const sentence = message("wallet-script.address-of-other", { other: other.name, network: network.name });
    must(other === network || !text.startsWith(`${other.prefix}1`), "network", sentence);
  }
  const start = `${network.prefix}1q`;
  const length = start.length + KEY_SYMBOLS + CHECKSUM_SYMBOLS;
  const form = message("wallet-script.address-form", { network: network.name, length, start });
  must(text.startsWith(start) && text.length === length, "address", form);
  const odd = [...text.slice(start.length)].find((character) => !SYMBOLS.includes(character));
  must(odd === undefined, "address", message("wallet-script.address-symbol", { symbol: quoted(odd ?? "") }));
  must(keyOf(text, network.prefix) !== null, "address", message("wallet-script.address-mistyped"));
}
