// The history of a wallet, which is loaded when it is opened.

import { byId, download, write } from "./wallet-dom.mjs";
import { beginsAt, fill, sayBeginning, unsettled, waitingElsewhere, withOwn } from "./wallet-lists.mjs";
import { Poller } from "./polling.mjs";
import { statementOf } from "./statement.mjs";
import { statementCsv } from "./statement-csv.mjs";
import { message } from "./texts.mjs";

/** @import { TransferRecord } from "./node.mjs" */
/** @import { Payment } from "./paying.mjs" */
/** @import { Wallet } from "./wallet.mjs" */
/** @import { Page } from "./wallet-part.mjs" */

/** What the buttons do while the history is shown; they are wired once.
 * @type {{ more: (() => Promise<void>) | null, file: (() => Promise<void>) | null, wired: boolean }} */
const asked = { more: null, file: null, wired: false };

/** @type {(tell: Page["tell"], onClick: Page["onClick"]) => void} */
function wire(tell, onClick) {
  if (asked.wired) return;
  asked.wired = true;
  onClick(byId("history-more"), () => asked.more?.());
  onClick(
    byId("history-export"),
    () => asked.file?.(),
    (problem) => tell(byId("history-live"), problem),
  );
}

/** Show all transfers, page by page, and keep them up to date; gives what ends that.
 * @type {(app: Wallet, page: Page) => () => void} */
export function follow(app, { tell, onClick, Problem }) {
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
  asked.more = () => {
    wanted += 1;
    return poller.ask();
  };
  asked.file = () => exportHistory(app, Problem);
  wire(tell, onClick);
  poller.ask();
  return () => {
    left = true;
    asked.more = asked.file = null;
    poller.end();
  };
}

/** Hand all changes of the balance to the person as a file.
 * @type {(app: Wallet, Problem: Page["Problem"]) => Promise<void>} */
async function exportHistory({ node, keyfile: { address } }, Problem) {
  const odd = () => new Problem("node-unreachable", message("wallet-script.node-odd"));
  const { entries, first } = await statementOf(node, address, odd);
  const csv = statementCsv(entries);
  if (csv === null) throw odd();
  const begins = first === 0n ? "" : `-from-block-${first}`;
  download(`${address.slice(0, 14)}-history${begins}.csv`, csv, "text/csv");
  write(byId("history-live"), `${message("wallet-script.file-handed")} ${beginsAt(first)}`.trim());
}
