// What the client makes of networks: each line of standard input is one, with heights and a lag; each of standard output
// what follows from its rules.

import { createInterface } from "node:readline";

import { parseNetwork } from "../../../clients/javascript/src/index.js";
import { issuedAfter, producersAt, targetAt } from "../../../clients/javascript/src/light/chain-rules.mjs";
import { slotTime } from "../../../clients/javascript/src/light/networks.mjs";

for await (const line of createInterface({ input: process.stdin })) {
  const { text, heights, lag } = JSON.parse(line);
  const { genesisHash, rules } = await parseNetwork(text);
  const told = {
    hashes: [genesisHash, rules.rulesHash, rules.genesisStateRoot],
    issued: heights.map((height) => `${issuedAfter(rules, BigInt(height))}`),
    producers: heights.map((height) => producersAt(rules, BigInt(height))),
    times: heights.map((height) => `${slotTime(rules, BigInt(height))}`),
    target: `${targetAt(rules, BigInt(lag))}`,
  };
  console.log(JSON.stringify(told));
}
