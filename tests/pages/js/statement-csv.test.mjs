import assert from "node:assert/strict";
import { test } from "node:test";

import { statementCsv } from "../../../svcd/pages/static/statement-csv.mjs";

const ENTRY = {
  type: "received",
  time: "1793491202000",
  height: "1",
  txid: "f7",
  counterparty: "svcd1q",
  reference: null,
  amount: "2500000000",
  fee: "0",
  confirmations: 3,
};

test("the columns of svc export, one row for each change", () => {
  const sent = { ...ENTRY, type: "sent", fee: "10000", reference: "order-1" };
  const reward = { ...ENTRY, type: "reward", txid: null, counterparty: null };
  assert.deepEqual(statementCsv([ENTRY, sent, reward, { ...sent, type: "self" }]).split("\r\n"), [
    "date (UTC),type,amount,fee,change,counterparty,reference,txid,height,confirmations",
    "2026-11-01 00:00:02,received,25,0,25,svcd1q,,f7,1,3",
    "2026-11-01 00:00:02,sent,25,0.0001,-25.0001,svcd1q,order-1,f7,1,3",
    "2026-11-01 00:00:02,reward,25,0,25,,,,1,3",
    "2026-11-01 00:00:02,self,25,0.0001,-0.0001,svcd1q,order-1,f7,1,3",
    "",
  ]);
});

test("nothing in it is a formula for a spreadsheet", () => {
  const [, row] = statementCsv([{ ...ENTRY, reference: "-1+2", counterparty: '=x,"y"' }]).split("\r\n");
  assert.match(row, /,"'=x,""y""",'-1\+2,f7,/);
});

test("an entry that makes no sense is not booked", () => {
  const lies = [
    ...[{ amount: "abc" }, { amount: 5 }, { amount: undefined }, { fee: "-1" }, { fee: null }],
    ...[{ type: "stolen" }, { type: "constructor" }, { type: ["sent"] }, { type: undefined }],
    ...[{ time: "x" }, { time: "9007199254740991" }, { time: undefined }, { height: "-1" }, { confirmations: "many" }],
    ...[{ txid: { toString: 7 } }, { counterparty: 7 }, { reference: [] }],
  ];
  for (const entry of [...lies.map((lie) => ({ ...ENTRY, ...lie })), null, "x", []])
    assert.equal(statementCsv([ENTRY, entry]), null, JSON.stringify(entry));
});
