// The views of an open wallet that only look: balance and receiving.

import { byId, onClick, onCopy, say, show, tell, write, writeAmount } from "./wallet-dom.mjs";
import { coins, UNIT } from "./digits.mjs";
import { blocksLeft } from "./expectation.mjs";
import { startChecking } from "./wallet-checking.mjs";
import { fill, sayBeginning, unsettled, waitingElsewhere, withOwn } from "./wallet-lists.mjs";
import { offerCoins } from "./wallet-part.mjs";
import { underWay } from "./review.mjs";
import { Poller } from "./polling.mjs";
import { message } from "./texts.mjs";
import { wireNumber } from "./units.mjs";

/** @import { TransferRecord } from "./node.mjs" */
/** @import { Payment } from "./paying.mjs" */
/** @import { Wallet } from "./wallet.mjs" */
/** @import { Row } from "./wallet-lists.mjs" */

const LATEST = 5;

/** What waits, and then what is on the chain or was refused, the newest first.
 * @type {(payments: Payment[], waiting: TransferRecord[], transfers: TransferRecord[]) => Row[]} */
function latestOf(payments, waiting, transfers) {
  const own = unsettled(payments);
  /** @type {(row: Row) => number} */
  const time = ({ blockTime, signedAt }) => Number(blockTime ?? signedAt ?? 0);
  return [
    ...own.waiting,
    ...waitingElsewhere(waiting, payments),
    ...[...withOwn(transfers, payments), ...own.refused].sort((one, other) => time(other) - time(one)),
  ];
}

/** What is on its way to `own` from others, in base units.
 * @type {(waiting: TransferRecord[], own: string) => bigint} */
function arriving(waiting, own) {
  const incoming = waiting.filter(({ payload, senderAddress }) => payload?.recipient === own && senderAddress !== own);
  return incoming.reduce((sum, { payload }) => sum + (wireNumber(payload?.amount) ?? 0n), 0n);
}

/** @type {(amount: bigint | null) => string} */
function openPayment(amount) {
  if (amount === null) return message("wallet-script.payment-open");
  return message("wallet-script.payment-open-of", { amount: coins(amount) });
}

/** Show balance and latest transfers, and keep them up to date; gives what ends that.
 * @type {(app: Wallet) => () => void} */
export function enterHome(app) {
  show("home");
  offerCoins(app);
  const own = app.keyfile.address;
  const live = byId("home-live");
  let left = false;
  const checking = startChecking(app, (line, problem) => {
    say(byId("home-checked"), left ? "" : line);
    tell(byId("home-unproved"), left ? null : problem);
  });
  const poller = new Poller(
    async () => {
      const view = await app.node.view();
      if (!left) await app.paying.settle(own, null, view.tip);
      // A locked wallet asks nothing about its address any more.
      if (left) return;
      const [account, { transfers, next }, waiting, payments, open] = await Promise.all([
        app.node.account(own),
        app.node.transfers(own),
        app.node.waiting(own),
        app.paying.of(own),
        app.spending.openLink(),
      ]);
      if (left) return;
      writeAmount(byId("balance"), account.balance);
      checking.look(account);
      const leaving = underWay(payments);
      say(byId("home-waiting"), leaving === 0n ? "" : message("wallet-script.on-the-way-out", { amount: coins(leaving) }));
      const coming = arriving(waiting, own);
      say(byId("home-incoming"), coming === 0n ? "" : message("wallet-script.more-arriving", { amount: coins(coming), left: blocksLeft(1, view) }));
      say(byId("home-open-what"), open === null ? "" : openPayment(open.amount));
      byId("home-open").hidden = open === null;
      const latest = latestOf(payments, waiting, transfers).slice(0, LATEST);
      fill(byId("home-transfers"), latest, own);
      sayBeginning("home", view.first, { ended: next === null, empty: latest.length === 0 });
      write(live, view.syncing ? message("wallet-script.balance-old") : "");
      if (view.syncing) live.dataset.error = "node-syncing";
      else delete live.dataset.error;
    },
    (problem) => {
      // No balance comes any more, so the line would not grow older.
      say(byId("home-checked"), "");
      tell(live, problem);
    },
  );
  poller.ask();
  return () => {
    left = true;
    checking.end();
    poller.end();
  };
}

/** Wire the views that only look.
 * @type {(app: Wallet) => void} */
export function wireHome(app) {
  onClick(byId("home-open-go"), () => app.go(""));
  onClick(byId("receive-go"), () => app.spending.resume());
  onCopy(byId("receive-copy"), () => app.keyfile.address, byId("receive-live"));
}

/** Show the own address and announce what arrives there; gives what ends that.
 * @type {(app: Wallet) => () => void} */
export function enterReceive(app) {
  const { keyfile, network } = app;
  const { address } = keyfile;
  write(byId("receive-address"), address);
  const taken = network.name === "devnet" ? "wallet-script.worth-nothing" : "wallet-script.takes-only";
  write(byId("receive-network"), message(taken, { network: network.name, unit: UNIT }));
  say(byId("receive-arriving"), "");
  byId("receive-missing").hidden = true;
  show("receive");
  let left = false;
  const code = document.getElementById("receive-qr");
  const draw = async () => {
    const { drawCode } = await import("./qr.mjs");
    if (!left && code) drawCode(code, address);
  };
  // The address can be copied all the same.
  draw().catch(() => code?.setAttribute("hidden", ""));
  /** @type {Set<string> | null} */
  let known = null;
  let arrived = 0n;
  const poller = new Poller(
    async () => {
      const [view, waiting, { transfers }, missing] = await Promise.all([
        app.node.view(),
        app.node.waiting(address),
        app.node.transfers(address),
        app.spending.missing(),
      ]);
      if (left) return;
      const seen = (known ??= new Set(transfers.map(({ txid }) => txid)));
      arrived += arriving(
        transfers.filter(({ txid }) => !seen.has(txid)),
        address,
      );
      transfers.forEach(({ txid }) => seen.add(txid));
      const coming = arriving(waiting, address);
      const sentences = [
        arrived > 0n && message("wallet-script.arrived", { amount: coins(arrived) }),
        coming > 0n && message("wallet-script.are-arriving", { amount: coins(coming), left: blocksLeft(1, view) }),
      ];
      say(byId("receive-arriving"), sentences.filter(Boolean).join(" "));
      showMissing(missing);
      tell(byId("receive-live"), null);
    },
    (problem) => {
      tell(byId("receive-live"), problem);
    },
  );
  poller.ask();
  return () => {
    left = true;
    poller.end();
  };
}

/** What is missing for the payment that is open, in base units: 0 once it can be paid, null if none waits for coins.
 * @type {(missing: bigint | null) => void} */
function showMissing(missing) {
  byId("receive-missing").hidden = missing === null;
  byId("receive-go").hidden = missing !== 0n;
  const wanted = () => message("wallet-script.missing", { amount: coins(missing ?? 0n) });
  write(byId("receive-missing-what"), missing === 0n ? message("wallet-script.enough") : wanted());
}
