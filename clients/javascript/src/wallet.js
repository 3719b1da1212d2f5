// Keys from 24 words or a seed, and signed transfers (docs/wallets.md). A shop's server needs none of this.

import { checkAddress, checkNames, checkNetwork, checkReference, integer, must } from "./chain.js";
import { ImpossibleAmount, InvalidInput } from "./errors.js";
import { pairOf, sign } from "./light/ed25519.mjs";
import { addressOf } from "./light/key-hash.mjs";
import { faultIn, seedOfWords, WORD_COUNT, wordsIn } from "./light/mnemonic.mjs";
import { possibleAmounts, signedTransfer } from "./light/transaction.mjs";

async function checkWords(words) {
  must(words.length === WORD_COUNT, `a wallet has ${WORD_COUNT} words, not ${words.length}`);
  const { WORDS } = await import("./words.js");
  const fitting = (await faultIn(words, WORDS)) === null;
  must(fitting, "these words do not fit together: one is wrong, or two have changed places");
}

/** An Ed25519 key that signs transfers; its private part cannot be read out again. */
export class Key {
  #private;

  /** Use `fromSeed` or `fromWords`. */
  constructor(privateKey, publicKey) {
    this.#private = privateKey;
    this.publicKey = publicKey;
  }

  /** The key of 32 secret bytes. */
  static async fromSeed(seed) {
    must(seed instanceof Uint8Array && seed.length === 32, "a seed is 32 bytes");
    try {
      const { privateKey, publicKey } = await pairOf(seed);
      return new Key(privateKey, publicKey);
    } catch {
      throw new InvalidInput("this platform cannot sign with Ed25519 in WebCrypto; use Node.js 20 or a newer browser");
    }
  }

  /** The key of 24 words: BIP-39 without a passphrase, then SLIP-0010 at m/0'. */
  static async fromWords(text) {
    const words = wordsIn(text);
    await checkWords(words);
    return Key.fromSeed(await seedOfWords(words));
  }

  /** The address on a network. */
  address(network) {
    return addressOf(this.publicKey, network);
  }

  /** The 64-byte signature of a message. */
  async sign(message) {
    return sign(this.#private, message);
  }
}

/** Throws ImpossibleAmount unless both accounts have at least `minimum` base units after a transfer. */
export function checkMinimum(amount, known) {
  const { minimum, fee, available } = known;
  const { least, most } = possibleAmounts(known);
  if (least <= amount && amount <= most) return;
  if (most < 1n) {
    const needs = `it has ${available} base units, needs ${fee} for the fee, and must keep ${minimum}`;
    throw new ImpossibleAmount(`the account can send nothing now: ${needs}`);
  }
  if (least > most) {
    const both = `the account can send at most ${most} base units now, and the recipient needs at least ${least}`;
    throw new ImpossibleAmount(`${both}: each must have ${minimum} after the transfer`);
  }
  if (amount > most)
    throw new ImpossibleAmount(`the account must keep ${minimum} base units: it can send at most ${most} now`, most);
  const after = `the recipient must have ${minimum} base units after the transfer`;
  throw new ImpossibleAmount(`${after}: send at least ${least}`, least);
}

/** A signed transfer: its txid and its nine fields with the signature. The fee is by default the network's least. */
export async function signTransfer(key, network, draft) {
  const { minimumFee } = checkNetwork(network).rules;
  checkNames(draft, "recipient", "amount", "nonce", "fee", "reference", "timestamp");
  const { recipient, amount, nonce, fee = minimumFee, reference = null, timestamp = BigInt(Date.now()) } = draft;
  const content = {
    recipient: checkAddress(recipient, network),
    reference: reference === null ? null : checkReference(reference),
    amount: integer(amount, "amount", 1n),
    fee: integer(fee, "fee", minimumFee),
    nonce: integer(nonce, "nonce"),
    timestamp: integer(timestamp, "timestamp"),
  };
  return signedTransfer(content, key.publicKey, (message) => key.sign(message), network);
}
