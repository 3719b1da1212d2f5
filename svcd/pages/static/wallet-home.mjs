// The views of an open wallet that only look: balance, receiving, history.

import { byId, element, moment, onClick, onCopy, show, tell, write, writeAmount } from "./wallet-dom.mjs";
import { coins, wireNumber } from "./amounts.mjs";
import { underWay } from "./review.mjs";
import { Poller } from "./polling.mjs";
import { visible } from "./visible.mjs";

const LATEST = 5;

/** The transfer of a record of the node as a line of a list, from where `own` stands. */
function line(record, own) {
  const out = record.senderAddress === own;
  const toSelf = out && record.payload?.recipient === own;
  const amount = element("span", { className: "amount" });
  writeAmount(amount, wireNumber(record.payload?.amount) ?? 0n, toSelf ? "" : out ? "−" : "+");
  const what = element("span", { className: "what", textContent: toSelf ? "To yourself" : out ? "Sent" : "Received" });
  const other = String(out ? record.payload?.recipient : record.senderAddress);
  const address = element("bdi", { textContent: visible(other) });
  const how = element("span", { className: "how soft small cut" }, howOf(record), " · ", address);
  const href = record.state ? `#payment=${record.txid}` : `/tx/${record.txid}`;
  return element("li", { className: out ? "out" : "in" }, element("a", { href }, what, amount, how));
}

function howOf({ state, problem, blockTime }) {
  if (state === "refused") return problem.code === "rejected" ? "refused by the node" : "not paid";
  if (state) return state === "signed" ? "signed, not yet sent" : state === "pending" ? "waits for a block" : state;
  return moment(Number(wireNumber(blockTime) ?? 0n));
}

const unsettled = (payments) =>
  payments
    .filter(({ state }) => state !== "confirmed" && state !== "confirming")
    .map(({ transfer, txid, state, problem }) => ({ ...transfer, txid, state, problem }));

function fill(list, records, own) {
  const shown = JSON.stringify(records.map(({ txid, state }) => [txid, state]));
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  list.replaceChildren(...records.map((record) => line(record, own)));
}

/** Show balance and latest transfers, and keep them up to date; gives what ends that. */
export function enterHome(app) {
  show("home");
  const own = app.keyfile.address;
  const live = byId("home-live");
  let left = false;
  const poller = new Poller(
    async () => {
      const view = await app.node.view();
      await app.paying.settle(own);
      const [{ balance }, { transfers }, payments] = await Promise.all([
        app.node.account(own),
        app.node.transfers(own),
        app.paying.of(own),
      ]);
      if (left) return;
      writeAmount(byId("balance"), balance);
      const waiting = underWay(payments);
      byId("home-waiting").hidden = waiting === 0n;
      write(byId("home-waiting"), `Of this ${coins(waiting)} are on their way out.`);
      const latest = [...unsettled(payments), ...transfers].slice(0, LATEST);
      fill(byId("home-transfers"), latest, own);
      byId("home-empty").hidden = latest.length > 0;
      const catchingUp = "The node is still catching up; the balance may be old.";
      write(live, view.syncing ? catchingUp : "");
      if (view.syncing) live.dataset.error = "node-syncing";
      else delete live.dataset.error;
    },
    (problem) => {
      tell(live, problem);
    },
  );
  poller.ask();
  return () => {
    left = true;
    poller.end();
  };
}

/** Wire and show the own address. */
export function wireReceive(app) {
  onCopy(byId("receive-copy"), () => app.keyfile.address, byId("receive-live"));
}

export function enterReceive({ keyfile, network }) {
  const { address } = keyfile;
  write(byId("receive-address"), address);
  const picture = byId("receive-qr");
  const source = `/qr.svg?data=${encodeURIComponent(address)}`;
  if (picture.getAttribute("src") !== source) picture.src = source;
  picture.hidden = false;
  // Without the picture the address itself is enough.
  picture.onerror = () => (picture.hidden = true);
  const worth = network.name === "mainnet" ? "" : " Coins of this network are worth nothing.";
  write(byId("receive-network"), `This address takes SVC of ${network.name} only.${worth}`);
  show("receive");
}

/** Show all transfers, page by page; gives what ends it. */
export function enterHistory(app) {
  show("history");
  const own = app.keyfile.address;
  const error = byId("history-error");
  let [all, next, ended] = [[], null, false];
  const more = async () => {
    try {
      const page = await app.node.transfers(own, next);
      if (ended) return;
      [all, next] = [[...all, ...page.transfers], page.next];
      tell(error, null);
    } catch (problem) {
      if (!ended) tell(error, problem);
      return;
    }
    fill(byId("history-transfers"), all, own);
    byId("history-empty").hidden = all.length > 0;
    byId("history-more").hidden = next === null;
  };
  const underway = async () => {
    const mine = unsettled(await app.paying.of(own));
    if (ended) return;
    fill(byId("history-own"), mine, own);
    byId("history-own-card").hidden = mine.length === 0;
  };
  app.moreHistory = more;
  underway().catch((problem) => ended || app.stop(problem));
  more();
  return () => {
    ended = true;
    app.moreHistory = null;
  };
}

export function wireHistory(app) {
  onClick(byId("history-more"), () => app.moreHistory?.());
}
