// Addresses: bech32m (BIP-350) over the first 20 bytes of a tagged hash of the public key (docs/protocol.md 3).

import { checksum, CHECKSUM_SYMBOLS, KEY_SYMBOLS, SYMBOLS } from "./bech32.mjs";
import { taggedHash } from "./bytes.mjs";
import { NETWORKS } from "./networks.mjs";
import { must, quoted } from "./problem.mjs";
import { message } from "./texts.mjs";

/** @import { Network } from "./networks.mjs" */

/** The address of a 20-byte key hash on a network.
 * @type {(keyHash: Uint8Array, network: Pick<Network, "prefix">) => string} */
function encodeAddress(keyHash, network) {
  const number = keyHash.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  const symbols = Array.from({ length: KEY_SYMBOLS + 1 }, (_, place) =>
    Number((number >> BigInt(160 - 5 * place)) & 31n),
  );
  const all = [...symbols, ...checksum(network.prefix, symbols)];
  return `${network.prefix}1${all.map((symbol) => SYMBOLS[symbol]).join("")}`;
}

/** The address of a 32-byte public key.
 * @type {(publicKey: Uint8Array, network: Pick<Network, "prefix">) => Promise<string>} */
export async function addressOf(publicKey, network) {
  return encodeAddress((await taggedHash("svc/address/v1", publicKey)).subarray(0, 20), network);
}

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
  const symbols = Array.from(text.slice(network.prefix.length + 1), (character) => SYMBOLS.indexOf(character));
  const odd = [...text.slice(start.length)].find((character) => !SYMBOLS.includes(character));
  must(odd === undefined, "address", message("wallet-script.address-symbol", { symbol: quoted(odd ?? "") }));
  const body = symbols.slice(0, KEY_SYMBOLS + 1);
  const right = checksum(network.prefix, body).every((symbol, place) => symbol === symbols[KEY_SYMBOLS + 1 + place]);
  must(right, "address", message("wallet-script.address-mistyped"));
}
