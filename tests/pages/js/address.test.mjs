import assert from "node:assert/strict";
import { test } from "node:test";

import { checkAddress } from "../../../svcd/pages/static/address.mjs";
import { bytesOf } from "../../../svcd/pages/static/bytes.mjs";
import { addressOf } from "../../../svcd/pages/static/key-hash.mjs";
import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { codeOf, vectors } from "./vectors.mjs";

const { devnet, mainnet } = NETWORKS;
const OURS = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";

for (const [name, { keys, genesisHash, rules }] of Object.entries(vectors("svc_protocol").networks)) {
  const network = NETWORKS[name];

  test(`${name} is the network of the protocol`, () => {
    const { networkId, chainId, prefix } = network;
    assert.deepEqual(
      [networkId, chainId, prefix, network.genesisHash],
      [rules.networkId, rules.chainId, rules.addressPrefix, genesisHash],
    );
  });

  for (const key of keys) {
    test(`${name}: the address of ${key.publicKey.slice(0, 8)}`, async () => {
      assert.equal(await addressOf(bytesOf(key.publicKey), network), key.address);
      checkAddress(key.address, network);
    });
  }
}

test("a change of any one character is noticed", async () => {
  for (let place = 6; place < OURS.length; place += 1) {
    const other = OURS[place] === "q" ? "p" : "q";
    const typed = OURS.slice(0, place) + other + OURS.slice(place + 1);
    assert.equal(await codeOf(() => checkAddress(typed, devnet)), "address", typed);
  }
});

test("an address of another network is told apart from a mistyped one", async () => {
  assert.equal(await codeOf(() => checkAddress(OURS, mainnet)), "network");
  assert.equal(await codeOf(() => checkAddress("svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7ytvpxz4", devnet)), "network");
});

const ODD = {
  empty: "",
  "upper case": OURS.toUpperCase(),
  "too short": OURS.slice(0, -1),
  "too long": `${OURS}q`,
  "a character that no address has": `${OURS.slice(0, 20)}b${OURS.slice(21)}`,
  "another first symbol": OURS.replace("svcd1q", "svcd1p"),
  "a blank behind it": `${OURS} `,
};

for (const [name, text] of Object.entries(ODD)) {
  test(`no address: ${name}`, async () => assert.equal(await codeOf(() => checkAddress(text, devnet)), "address"));
}
