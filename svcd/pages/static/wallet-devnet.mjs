// What a wallet offers on a devnet: coins of its faucet, whose key is public, and the command that makes a block. Blocks
// are made by the operator's token alone, which no page has.

import { sha256, utf8 } from "./bytes.mjs";
import { pairOf, sign } from "./ed25519.mjs";
import { addressOf } from "./key-hash.mjs";
import { siteData } from "./site-data.mjs";
import { signedTransfer } from "./transaction.mjs";
import { byId, onCopy } from "./wallet-dom.mjs";

/** @import { Bytes } from "./bytes.mjs" */
/** @import { Key } from "./ed25519.mjs" */
/** @import { Wallet } from "./wallet.mjs" */
/** @import { Page } from "./wallet-part.mjs" */

/** Of the seed of the faucet's key, which anybody may use (FAUCET_SEED in svcd/chain/params.py). */
const SEED = "svc devnet faucet";
/** Base units. */
const AMOUNT = 10_000_000_000n;

let wired = false;

/** Hand in a transfer from the faucet.
 * @type {(app: Wallet, key: Key) => Promise<void>} */
async function take({ node, network, keyfile }, { publicKey, privateKey }) {
  const [{ pendingNonce: nonce }, fee] = await Promise.all([
    node.account(await addressOf(publicKey, network)),
    node.fee(),
  ]);
  const draft = { recipient: keyfile.address, amount: AMOUNT, reference: null, fee, nonce, timestamp: BigInt(Date.now()) };
  /** @type {(content: Bytes) => Promise<Bytes>} */
  const signing = (content) => sign(privateKey, content);
  const { txid, transaction } = await signedTransfer(draft, publicKey, signing, network);
  await node.broadcast(txid, transaction);
}

/** Show what there is: the button only while the faucet has enough, the command only where no block comes by itself.
 * @type {(app: Wallet, page: Pick<Page, "tell" | "onClick">) => Promise<void>} */
export async function offer(app, { tell, onClick }) {
  const key = await pairOf(await sha256(utf8(SEED)));
  const { balance } = await app.node.account(await addressOf(key.publicKey, app.network));
  const live = byId("home-faucet-live");
  if (!wired) {
    wired = true;
    onCopy(byId("home-mine-copy"), () => byId("home-mine-command").textContent, live);
    onClick(byId("home-faucet"), () => take(app, key).then(() => tell(live, null)), (problem) => tell(live, problem));
  }
  byId("home-faucet").hidden = balance <= 2n * AMOUNT;
  byId("home-mine").hidden = siteData().blockSeconds !== null;
  byId("home-devnet").hidden = false;
}
