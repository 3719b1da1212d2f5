// What the wallet's page asks a node to prove, and does not believe.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HEADER_FIELDS } from "../../../svcd/pages/static/chain-proof.mjs";
import { provenAccount, Unanswered } from "../../../svcd/pages/static/light-node.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { vectors } from "./vectors.mjs";

const { devnetChain, accountProofs } = vectors("svc_protocol");

test("headers that nobody asked for cost no work", async () => {
  const network = NETWORKS.devnet;
  const { proof } = accountProofs.find(({ why }) => why === "present");
  const mountains = [{ digest: network.genesisHash, work: 0n, slot: 0n, clock: 0n }];
  const genesis = { hash: network.genesisHash, height: 0n, slot: 0n, clock: 0n, work: 0n, mountains };
  const headers = devnetChain.blocks.map(({ block }) => Object.fromEntries(HEADER_FIELDS.map((name) => [name, block[name]])));
  const [asked, evaluated] = [[], []];
  const answers = [
    { ok: true, proof: { ...proof, height: "1" } },
    { ok: true, headers, from: "1", height: "25" },
  ];
  const questions = {
    network,
    known: { head: genesis, stateRoot: "" },
    ask: async (path) => {
      asked.push(path);
      if (answers.length === 0) throw new Unanswered("no more");
      return JSON.stringify(answers.shift());
    },
    evaluate: async (...given) => evaluated.push(given) && new Uint8Array(32),
    progress: () => {},
    clock: Date.now,
  };
  await assert.rejects(provenAccount(proof.address, questions), /no more/);
  assert.deepEqual(asked.slice(1), ["/p2p/headers?from=1&limit=1", `/rpc/proof/chain?tip=${proof.hash}`]);
  assert.deepEqual(evaluated, []);
});
