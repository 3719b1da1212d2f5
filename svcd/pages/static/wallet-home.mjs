// The views of an open wallet that only look: balance, receiving, history.

import { byId, download, element, moment, onClick, onCopy, show, tell, write, writeAmount } from "./wallet-dom.mjs";
import { coins, UNIT } from "./digits.mjs";
import { blockSeconds } from "./built-in.mjs";
import { loaded, odd } from "./node.mjs";
import { hasFallen } from "./paying.mjs";
import { startChecking } from "./wallet-checking.mjs";
import { underWay } from "./review.mjs";
import { Poller } from "./polling.mjs";
import { aboutTime, message } from "./texts.mjs";
import { wireNumber } from "./units.mjs";
import { visible } from "./visible.mjs";

/** @import { TransferRecord } from "./node.mjs" */
/** @import { Payment, PaymentState } from "./paying.mjs" */
/** @import { Wallet } from "./wallet.mjs" */
/**
 * @typedef {Omit<TransferRecord, "blockTime"> & { blockTime?: string | number, signedAt?: number, state?: PaymentState,
 *   label?: string | null, problem?: { code: string } | null, waits?: boolean, fallen?: boolean }} Row
 */

const LATEST = 5;
/** How the reference of a refund begins (docs/payments.md). */
const REFUND = "refund:";

/** The transfer of a record of the node as a line of a list, from where `own` stands.
 * @type {(record: Row, own: string) => HTMLElement} */
function line(record, own) {
  const out = record.senderAddress === own;
  const toSelf = out && record.payload?.recipient === own;
  const sign = toSelf || record.state === "refused" ? "" : out ? "−" : "+";
  const amount = element("span", { className: "amount" });
  writeAmount(amount, wireNumber(record.payload?.amount) ?? 0n, sign);
  const what = element("span", { className: "what", textContent: kindOf(record, out, toSelf) });
  const other = String(out ? record.payload?.recipient : record.senderAddress);
  const address = element("bdi", { textContent: visible(other) });
  const how = element("span", { className: "how soft small cut" }, howOf(record), " · ", address);
  const name = element("bdi", { className: "label", textContent: visible(record.label ?? "") });
  const unsigned = ` ${message("wallet-script.label-unsigned")}`;
  const reference = record.payload?.paymentReference;
  const referred = reference ? [element("bdi", { className: "how mono soft small", textContent: visible(String(reference)) })] : [];
  const label = record.label ? [element("span", { className: "how soft small cut" }, name, unsigned)] : [];
  const href = record.state ? `#payment=${record.txid}` : `/tx/${record.txid}`;
  return element("li", { className: out ? "out" : "in" }, element("a", { href }, what, amount, how, ...referred, ...label));
}

/** @type {(record: Row, out: boolean, toSelf: boolean) => string} */
function kindOf({ waits, state, payload }, out, toSelf) {
  if (state === "refused") return message("wallet-script.title-refused");
  if (waits && !out) return message("wallet-script.arriving");
  if (toSelf) return message("wallet-script.to-yourself");
  if (String(payload?.paymentReference).startsWith(REFUND)) {
    return out ? message("wallet-script.refund-sent") : message("wallet-script.refund-received");
  }
  return out ? message("wallet-script.sent") : message("wallet-script.received");
}

/** @type {(record: Row) => string | HTMLElement} */
function howOf({ state, problem, blockTime, signedAt, waits, fallen }) {
  if (fallen && state === "refused") return message("wallet-script.line-fallen-refused");
  if (fallen) return message("wallet-script.line-fallen");
  if (state === "refused" && problem?.code === "rejected") return message("wallet-script.line-rejected");
  if (state === "refused") return moment(signedAt ?? 0);
  if (waits || state === "pending") return message("wallet-script.line-pending");
  if (state === "signed") return message("wallet-script.line-signed");
  return moment(Number(wireNumber(blockTime) ?? 0n));
}

/** The payments of this wallet that no block holds, as records of the node with their state: those that wait, and those
 * that were refused.
 * @type {(payments: Payment[]) => { waiting: Row[], refused: Row[] }} */
function unsettled(payments) {
  const rows = payments
    .filter(({ state }) => state !== "confirmed" && state !== "confirming")
    .map((payment) => ({ ...payment.transfer, ...payment, fallen: hasFallen(payment) }));
  return {
    waiting: rows.filter(({ state }) => state !== "refused"),
    refused: rows.filter(({ state }) => state === "refused"),
  };
}

/** Records of the chain, with what this wallet knows of its own payments.
 * @type {(records: TransferRecord[], payments: Payment[]) => Row[]} */
function withOwn(records, payments) {
  const own = new Map(payments.map((payment) => [payment.txid, payment]));
  return records.map((record) => {
    const payment = own.get(record.txid);
    return { ...record, state: payment?.state, label: payment?.label };
  });
}

/** What waits in the mempool and was not signed here.
 * @type {(waiting: TransferRecord[], payments: Payment[]) => Row[]} */
function waitingElsewhere(waiting, payments) {
  const own = new Set(payments.map(({ txid }) => txid));
  return waiting.filter(({ txid }) => !own.has(txid)).map((record) => ({ ...record, waits: true }));
}

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

/** @type {(list: HTMLElement, records: Row[], own: string) => void} */
function fill(list, records, own) {
  const shown = JSON.stringify(records.map((each) => [each.txid, each.state, each.waits, each.fallen, each.blockTime]));
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  list.replaceChildren(...records.map((record) => line(record, own)));
}

/** Write a sentence where it is to be seen, or hide the place for "".
 * @type {(where: HTMLElement, sentence: string) => void} */
function say(where, sentence) {
  write(where, sentence);
  where.hidden = sentence === "";
}

/** That the node has blocks only from the height `first` on, or "" if it has all.
 * @type {(first: bigint) => string} */
const beginsAt = (first) => (first === 0n ? "" : message("wallet-script.only-later", { height: first }));

/** Say below a list that has ended where it begins, and that it is empty where it is.
 * @type {(name: string, first: bigint, list: { ended: boolean, empty: boolean }) => void} */
function sayBeginning(name, first, { ended, empty }) {
  byId(`${name}-empty`).hidden = !empty || first > 0n;
  const none = empty && first > 0n ? `${message("wallet-script.none-here")} ` : "";
  say(byId(`${name}-first`), ended ? none + beginsAt(first) : "");
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
      say(byId("home-incoming"), coming === 0n ? "" : message("wallet-script.more-arriving", { amount: coins(coming), time: aboutTime(blockSeconds(app.network)) }));
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
      const [waiting, { transfers }, missing] = await Promise.all([
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
        coming > 0n && message("wallet-script.are-arriving", { amount: coins(coming), time: aboutTime(blockSeconds(network)) }),
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

/** Show all transfers, page by page, and keep them up to date; gives what ends that.
 * @type {(app: Wallet) => () => void} */
export function enterHistory(app) {
  show("history");
  const { node, paying } = app;
  const own = app.keyfile.address;
  const error = byId("history-error");
  write(byId("history-live"), "");
  let left = false;
  let wanted = 1;
  /** @type {{ tip: string, pages: number, transfers: TransferRecord[], next: string | null }} */
  let listed = { tip: "", pages: 0, transfers: [], next: null };
  /** @type {(tip: string) => Promise<void>} */
  const load = async (tip) => {
    if (listed.tip !== tip) listed = { tip, pages: 0, transfers: [], next: null };
    while (listed.pages === 0 || (listed.pages < wanted && listed.next !== null)) {
      const { transfers, next } = await node.transfers(own, listed.next);
      listed = { tip, pages: listed.pages + 1, transfers: [...listed.transfers, ...transfers], next };
    }
  };
  /** @type {(payments: Payment[], waiting: TransferRecord[]) => void} */
  const showOwn = (payments, waiting) => {
    if (left) return;
    const mine = unsettled(payments);
    const lists = { own: [...mine.waiting, ...waitingElsewhere(waiting, payments)], refused: mine.refused };
    for (const [name, rows] of Object.entries(lists)) {
      fill(byId(`history-${name}`), rows, own);
      byId(`history-${name}-card`).hidden = rows.length === 0;
    }
  };
  const poller = new Poller(
    async () => {
      // Without the node's answer the payments of this wallet are shown all the same.
      if (listed.pages === 0) showOwn(await paying.of(own), []);
      const { tip, first } = await node.view();
      if (!left) await paying.settle(own, null, tip);
      if (left) return;
      const [waiting, payments] = await Promise.all([node.waiting(own), paying.of(own), load(tip)]);
      if (left) return;
      showOwn(payments, waiting);
      fill(byId("history-transfers"), withOwn(listed.transfers, payments), own);
      sayBeginning("history", first, { ended: listed.next === null, empty: listed.transfers.length === 0 });
      byId("history-more").hidden = listed.next === null;
      tell(error, null);
    },
    (problem) => tell(error, problem),
  );
  app.moreHistory = async () => {
    wanted += 1;
    await poller.ask();
  };
  poller.ask();
  return () => {
    left = true;
    app.moreHistory = null;
    poller.end();
  };
}

/** Hand all changes of the balance to the person as a file.
 * @type {(app: Wallet) => Promise<void>} */
async function exportHistory({ node, keyfile: { address } }) {
  const { statementCsv } = await loaded(import("./statement-csv.mjs"));
  const { entries, first } = await node.statement(address);
  const csv = statementCsv(entries);
  if (csv === null) throw odd();
  const begins = first === 0n ? "" : `-from-block-${first}`;
  download(`${address.slice(0, 14)}-history${begins}.csv`, csv, "text/csv");
  write(byId("history-live"), `${message("wallet-script.file-handed")} ${beginsAt(first)}`.trim());
}

/** @type {(app: Wallet) => void} */
export function wireHistory(app) {
  onClick(byId("history-more"), () => app.moreHistory?.());
  onClick(
    byId("history-export"),
    () => exportHistory(app),
    (problem) => tell(byId("history-live"), problem),
  );
}
