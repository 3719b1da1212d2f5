// One transfer from or to this wallet that was not signed here, and the way to refund it. Loaded when one is opened.

import { InvalidProof } from "./errors.mjs";
import { Poller } from "./polling.mjs";
import { paidUnder, refundedOf, refundReference, restOf } from "./refund.mjs";
import { signedOf } from "./signed.mjs";
import { signedIn } from "./signed-transfer.mjs";
import { message } from "./texts.mjs";
import { CONFIRMATIONS, kindOf } from "./transfer-kind.mjs";
import { byId, moment, onCopy, write, writeAmount } from "./wallet-dom.mjs";

/** @import { Place, TransferRecord } from "./node.mjs" */
/** @import { Transfer } from "./transaction.mjs" */
/** @import { Wallet } from "./wallet.mjs" */
/** @import { Page } from "./wallet-part.mjs" */
/** @typedef {{ recipient: string, amount: bigint, reference: string }} Refund */

// Milliseconds between looks at a transfer that only a deep reorganisation may take back.
const SLOW = 30_000;

/** What the buttons are about: they are wired once, and shown for one transfer after another. */
const shown = {
  other: "",
  /** @type {(() => void) | null} */
  refund: null,
};
let wired = false;

/** @type {(onClick: Page["onClick"]) => void} */
function wire(onClick) {
  if (wired) return;
  wired = true;
  onCopy(byId("transfer-copy"), () => shown.other, byId("transfer-live"));
  onClick(byId("transfer-refund"), () => shown.refund?.());
}

/** @type {(app: Wallet, refund: Refund, odd: () => Error) => Promise<bigint>} */
async function refundedBy({ node, paying, keyfile: { address } }, refund, odd) {
  const { first } = await node.view();
  const [payments, there] = await Promise.all([paying.of(address), paidUnder(node, refund, first, odd)]);
  return refundedOf(refund, address, payments, there);
}

/** @type {(transfer: Transfer, txid: string, own: string) => void} */
function fill({ senderAddress, timestamp, payload }, txid, own) {
  const out = senderAddress === own;
  const toSelf = out && payload.recipient === own;
  writeAmount(byId("transfer-amount"), BigInt(payload.amount), toSelf ? "" : out ? "−" : "+");
  shown.other = out ? payload.recipient : senderAddress;
  write(byId("transfer-other"), shown.other);
  byId("transfer-from").hidden = out;
  byId("transfer-to").hidden = !out;
  write(byId("transfer-reference"), payload.paymentReference ?? message("wallet-script.none"));
  byId("transfer-time").replaceChildren(moment(Number(timestamp)));
  const link = byId("transfer-txid", HTMLAnchorElement);
  write(link, txid);
  link.href = `/tx/${txid}`;
}

/** @type {(transfer: Transfer, place: Place | null, own: string) => void} */
function fillPlace({ senderAddress, payload }, place, own) {
  const out = senderAddress === own;
  const { recipient, amount, paymentReference } = payload;
  const title = kindOf(payload, { out, toSelf: out && recipient === own, waits: place === null });
  write(byId("transfer-title"), title);
  document.title = `${title} · SVC`;
  tellState(place === null ? "pending" : "confirmed", place?.confirmations ?? 0);
  const proven = place !== null && paymentReference !== undefined;
  byId("transfer-proof-name").hidden = byId("transfer-proof").hidden = !proven;
  if (place === null) return;
  byId("transfer-time").replaceChildren(moment(place.blockTime));
  if (paymentReference === undefined) return;
  const terms = { recipient, amountBaseUnits: amount, sinceHeight: place.blockHeight, chain: "1" };
  const file = byId("transfer-proof-file", HTMLAnchorElement);
  file.href = `/rpc/commerce/payment/${paymentReference}/proof?${new URLSearchParams(terms)}`;
  file.download = `proof-${paymentReference}.json`;
}

/** @type {(state: "pending" | "confirmed" | "gone", confirmations: number) => void} */
function tellState(state, confirmations) {
  const where = byId("transfer-state");
  Object.assign(where.dataset, { state, confirmations });
  const sentences = {
    pending: () => message("script.next-block"),
    confirmed: () => message("script.confirmations", { count: confirmations }),
    gone: () => message("wallet-script.refused"),
  };
  write(where, sentences[state]());
}

/** @type {(place: Place | null, refunded: bigint) => void} */
function fillRefund(place, refunded) {
  byId("transfer-refunding").hidden = place === null || shown.refund === null;
  const early = byId("transfer-early");
  const done = place?.confirmations ?? 0;
  write(early, message("wallet-script.refund-early", { done, needed: CONFIRMATIONS }));
  early.hidden = done >= CONFIRMATIONS;
  byId("transfer-refunded-name").hidden = byId("transfer-refunded").hidden = refunded === 0n;
  writeAmount(byId("transfer-refunded"), refunded);
}

/** Show a transfer and keep it up to date; gives what ends that. What the node tells of it counts only as its sender has
 * signed it.
 * @type {(app: Wallet, txid: string, page: Page) => () => void} */
export function follow(app, txid, { tell, onClick, Problem }) {
  const { node, network, keyfile, paying, spending } = app;
  const own = keyfile.address;
  let left = false;
  // It becomes a part of paths.
  const isTxid = /^[0-9a-f]{64}$/.test(txid);
  /** @type {Transfer | null} */
  let transfer = null;
  /** @type {Refund | null} */
  let refund = null;
  /** @type {(record: TransferRecord) => Promise<void>} */
  const begin = async (record) => {
    const signed = await signedIn(record, { txid, party: own }, network);
    const { senderAddress: sender, payload } = signed;
    if (sender !== own) {
      const reference = await refundReference(payload.paymentReference ?? null, txid);
      refund = { recipient: sender, amount: BigInt(payload.amount), reference };
    }
    if (left) return;
    fill(signed, txid, own);
    transfer = signed;
  };
  /** @type {(reason: string) => InstanceType<typeof Problem>} */
  const unproved = (reason) => new Problem("unproved", message("wallet-script.unproved", { reason }));
  const odd = () => new Problem("node-unreachable", message("wallet-script.node-odd"));
  const look = async () => {
    const found = await node.transfer(txid, own);
    if (found !== null && transfer === null) await begin(found.record);
    const at = found?.place ?? null;
    const refunded = refund === null || at === null ? 0n : await refundedBy(app, refund, odd);
    if (left) return true;
    tell(byId("transfer-error"), null);
    byId("transfer-body").hidden = false;
    const sent = refund;
    shown.refund = sent && (() => spending.propose({ ...sent, amount: restOf(sent.amount, refunded) }));
    if (transfer !== null) fillPlace(transfer, at, own);
    if (found === null) tellState("gone", 0);
    fillRefund(at, refunded);
    byId("transfer-amount").hidden = byId("transfer-facts").hidden = transfer === null;
    return at !== null && at.confirmations >= CONFIRMATIONS ? SLOW : false;
  };
  wire(onClick);
  const poller = new Poller(
    async () => {
      const payments = await paying.of(own);
      if (left) return true;
      if (!isTxid || payments.some((each) => signedOf(each).some((signed) => signed.txid === txid))) {
        app.go(isTxid ? `payment=${txid}` : "history", { replace: true });
        return true;
      }
      try {
        return await look();
      } catch (problem) {
        throw problem instanceof InvalidProof ? unproved(problem.message) : problem;
      }
    },
    (problem) => left || tell(byId("transfer-error"), problem),
  );
  poller.ask();
  return () => {
    left = true;
    shown.refund = null;
    poller.end();
  };
}
