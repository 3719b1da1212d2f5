// The questions of the pages. Their time limits are constants: here time runs faster.

import { Node, odd } from "../../../svcd/pages/static/node.mjs";
import { statementOf } from "../../../svcd/pages/static/statement.mjs";
import { useTexts } from "../../../svcd/pages/static/texts.mjs";
import { given, serve } from "./caller.mjs";

const FASTER = 10 / given.timeout;
const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (milliseconds) => timeout(milliseconds / FASTER);
// A text is its key with what it tells.
useTexts(new Proxy({}, { get: (_, key) => `${String(key)}` }), "en");

const node = new Node((path, options) => fetch(given.url + path, options));
const { recipient, amount, reference, confirmations } = given.order;
const order = { recipient, reference, confirmations, amount: BigInt(amount) };
const { txid, transaction } = given.transfer;

await serve(
  {
    view: () => node.view(),
    network: () => node.network(),
    account: () => node.account(recipient),
    fee: () => node.fee(),
    transaction: () => node.transaction(given.paid),
    firstBlock: () => node.firstBlock(),
    transfers: () => node.transfers(recipient),
    waiting: () => node.waiting(recipient),
    statement: () => statementOf(node, recipient, odd),
    payment: () => node.payment(order),
    broadcast: () => node.broadcast(txid, transaction),
  },
  (error) => error.code ?? error.constructor.name,
);
