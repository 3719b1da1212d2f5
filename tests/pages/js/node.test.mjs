import assert from "node:assert/strict";
import { test } from "node:test";

import { NETWORKS } from "../../../svcd/pages/static/networks.mjs";
import { Node, odd } from "../../../svcd/pages/static/node.mjs";
import { statementOf } from "../../../svcd/pages/static/statement.mjs";
import { Devnet, NOW } from "./devnet.mjs";
import { codeOf, problemOf } from "./vectors.mjs";

const ADDRESS = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc";
const TXID = "ab".repeat(32);

function opened(edit = () => {}) {
  const devnet = new Devnet();
  edit(devnet);
  return new Node(devnet.fetch);
}
const answering = (body, status = 200) =>
  opened((devnet) => {
    devnet.between = () => new Response(typeof body === "string" ? body : JSON.stringify(body), { status });
  });

test("the network and the view of the node", async () => {
  const node = opened();
  assert.equal((await node.network()).name, "devnet");
  const { network, ...view } = await node.view();
  assert.deepEqual(view, { height: 0n, first: 0n, tip: "aa", tipTime: NOW, syncing: false, time: NOW });
  assert.equal(network.prefix, "svcd");
});

const STRANGE = {
  "a chain that is unknown": ({ status }) => Object.assign(status, { chainId: "OTHER" }),
  "another genesis": ({ status }) => Object.assign(status, { genesisHash: "00".repeat(32) }),
  "another network id": ({ status }) => Object.assign(status, { networkId: 1 }),
  "another genesis of the rules": ({ consensus }) => Object.assign(consensus, { genesisHash: "00".repeat(32) }),
  "a fee of its own": ({ consensus }) => Object.assign(consensus, { minimumFee: "100000000" }),
  "an account minimum of its own": ({ consensus }) => Object.assign(consensus, { accountMinimum: "1" }),
};

for (const [name, edit] of Object.entries(STRANGE)) {
  test(`wrong network: ${name}`, async () => assert.equal(await codeOf(opened(edit).network()), "wrong-network"));
}

test("a next nonce before that of the chain makes no sense", async () => {
  const account = { address: ADDRESS, balance: "1", pendingBalance: "1", nonce: "2", pendingNonce: "1" };
  assert.equal(await codeOf(answering({ account }).account(ADDRESS)), "node-unreachable");
});

test("the fee is the node's suggestion, within bounds", async () => {
  for (const suggestedFee of ["10000", "34567", "1000000"])
    assert.equal(await opened((devnet) => (devnet.fees = { suggestedFee })).fee(), BigInt(suggestedFee));
  for (const suggestedFee of ["9999", "1000001"])
    assert.equal(await codeOf(opened((devnet) => (devnet.fees = { suggestedFee })).fee()), "fee");
  for (const fees of [{}, null])
    assert.equal(await codeOf(opened((devnet) => (devnet.fees = fees)).fee()), "node-unreachable");
});

test("a node that moves to another network is noticed", async () => {
  const devnet = new Devnet();
  const node = new Node(devnet.fetch);
  await node.network();
  const { networkId, chainId, genesisHash } = NETWORKS.mainnet;
  Object.assign(devnet.status, { networkId, chainId, genesisHash });
  assert.equal(await codeOf(node.view()), "wrong-network");
});

const MUTE = {
  "no connection": opened((devnet) => (devnet.between = () => Promise.reject(new TypeError("Failed to fetch")))),
  "no JSON": answering("<html>"),
  "no object": answering("[]"),
  "too many requests": answering({ ok: false, error: "too many" }, 429),
  "a fault of the node": answering({ ok: false, error: "failed" }, 500),
  "a node that stops": answering({ ok: false, error: "stopping" }, 503),
  "numbers that are none": answering({ account: { address: ADDRESS, balance: 1, pendingBalance: "0", nonce: "0", pendingNonce: "0" } }),
  "a number too large": answering({ account: { address: ADDRESS, balance: "9007199254740992", pendingBalance: "0", nonce: "0", pendingNonce: "0" } }),
};

for (const [name, node] of Object.entries(MUTE)) {
  test(`node unreachable: ${name}`, async () => assert.equal(await codeOf(node.account(ADDRESS)), "node-unreachable"));
}

const ORDER = { recipient: ADDRESS, amount: 1n, reference: "order-1", confirmations: 3 };

/** A node that deletes a block whenever an answer about the first one is on its way, `times` times. */
function deleting(times) {
  const devnet = new Devnet();
  devnet.height = 5;
  devnet.prune();
  const node = new Node(devnet.fetch);
  devnet.between = (path) => {
    if (times === 0 || path === "/rpc/status") return;
    times -= 1;
    devnet.height += 1;
    devnet.prune();
  };
  return { devnet, node };
}

test("the first block is asked for again, if it is deleted after the status, and the status once", async () => {
  const { devnet, node } = deleting(2);
  const { height, time, newest } = await node.firstBlock();
  const future = 1000 * Number(NETWORKS.devnet.rules.transactionFutureSeconds);
  assert.deepEqual([height, time, newest], [8n, NOW, NOW + future]);
  assert.deepEqual(devnet.asked, ["/rpc/status", "/rpc/block/6", "/rpc/block/7", "/rpc/block/8"]);
  assert.equal(await codeOf(deleting(-1).node.firstBlock()), "node-unreachable", "not for ever");
  assert.equal(await opened().firstBlock(), null);
});

test("whether an order is paid is asked of the blocks that the node has", async () => {
  const { devnet, node } = deleting(1);
  const { told, ...found } = await node.payment(ORDER);
  assert.deepEqual(found, { state: "unpaid", txid: null, first: 7n });
  assert.equal(told.reference, ORDER.reference);
  assert.deepEqual(
    devnet.asked.map((path) => new URLSearchParams(path.split("?")[1]).get("sinceHeight")),
    [null, "7"],
  );
  devnet.asked = [];
  await node.view();
  assert.equal((await node.payment(ORDER)).first, 7n);
  assert.equal(devnet.asked.length, 2, "the height is known by now");
  assert.equal((await opened().payment(ORDER)).first, 0n);
  assert.equal(await codeOf(deleting(-1).node.payment(ORDER)), "node-unreachable", "not for ever");
});

const entries = (...heights) => heights.map((height) => ({ type: "received", height: `${height}` }));

test("a statement begins at the first block that the node has", async () => {
  const devnet = new Devnet();
  const node = new Node(devnet.fetch);
  devnet.entries = entries(1, 6, 7, 8);
  assert.deepEqual(await statementOf(node, ADDRESS, odd), { entries: devnet.entries, first: 0n });
  devnet.height = 5;
  devnet.prune();
  assert.deepEqual(await statementOf(node, ADDRESS, odd), { entries: entries(6, 7, 8), first: 6n });
});

test("a statement begins anew if its first block is deleted before its last page", async () => {
  const devnet = new Devnet();
  devnet.entries = entries(6, 7, 8);
  devnet.height = 5;
  devnet.prune();
  let left = 1;
  devnet.between = (path) => {
    if (!path.includes("after=") || left === 0) return;
    left -= 1;
    devnet.now += 60_000;
    devnet.height += 1;
    devnet.prune();
  };
  assert.deepEqual(await statementOf(new Node(devnet.fetch), ADDRESS, odd), { entries: entries(7, 8), first: 7n });
  devnet.entries = entries(7, 8, 9, 10, 11, 12);
  left = -1;
  assert.equal(await codeOf(statementOf(new Node(devnet.fetch), ADDRESS, odd)), "node-unreachable", "not for ever");
});

test("a list of transfers ends where the blocks of its next page have been deleted", async () => {
  const node = answering({ ok: false, error: "this node has only blocks from height 7 on", pruneHeight: "7" }, 410);
  assert.deepEqual(await node.transfers(ADDRESS, "7-0"), { transfers: [], next: null });
});

test("a list of anything but transfers makes no sense", async () => {
  for (const transactions of [[null], ["a"], {}, undefined])
    for (const call of ["transfers", "waiting"]) {
      const node = opened((devnet) => {
        devnet.between = (path) =>
          /^\/rpc\/(?:address|mempool)\//.test(path)
            ? new Response(JSON.stringify({ address: ADDRESS, transactions, next: null }))
            : null;
      });
      assert.equal(await codeOf(node[call](ADDRESS)), "node-unreachable", `${call} ${JSON.stringify(transactions)}`);
    }
});

test("a list of another address makes no sense", async () => {
  for (const address of [ADDRESS.replace("0", "2"), undefined]) {
    const node = opened((devnet) => {
      devnet.between = (path) =>
        /^\/rpc\/(?:address|mempool)\//.test(path)
          ? new Response(JSON.stringify({ address, transactions: [], entries: [], next: null }))
          : null;
    });
    for (const call of ["transfers", "waiting"])
      assert.equal(await codeOf(node[call](ADDRESS)), "node-unreachable", call);
    assert.equal(await codeOf(statementOf(node, ADDRESS, odd)), "node-unreachable");
  }
});

test("a transfer that no block holds", async () => assert.equal(await opened().transaction(TXID), null));

test("the reason of a refusal is passed on", async () => {
  const { code, sentence } = await problemOf(
    answering({ ok: false, error: "nonce 3 is already used" }, 400).broadcast(TXID, {}),
  );
  assert.deepEqual([code, sentence], ["rejected", "The node refused the transfer: nonce 3 is already used."]);
});

test("a node that names another txid is not believed", async () => {
  assert.equal(
    await codeOf(answering({ ok: true, txid: "cd".repeat(32), state: "accepted" }).broadcast(TXID, {})),
    "rejected",
  );
});

test("every question goes to the node's own origin, unseen by caches and without cookies", async () => {
  const seen = [];
  const node = new Node(async (path, options) => {
    seen.push([path, options.cache, options.credentials, options.redirect]);
    return new Response("{}", { status: 500 });
  });
  await codeOf(node.account(ADDRESS));
  assert.deepEqual(seen, [[`/rpc/balance/${ADDRESS}`, "no-store", "omit", "manual"]]);
});

/** A node that answers statements so, and how often it was asked for one. */
function stating(page) {
  const asked = [];
  const node = opened((devnet) => {
    devnet.between = (path) => {
      if (!path.includes("/statement?")) return undefined;
      asked.push(path);
      return new Response(page(asked.length));
    };
  });
  return { node, asked };
}

test("an answer has at most 4 MiB, and none is of elsewhere", async () => {
  const account = { address: ADDRESS, balance: "1", pendingBalance: "1", nonce: "2", pendingNonce: "2" };
  const text = JSON.stringify({ account });
  const most = 4 * 1024 * 1024;
  assert.equal((await answering(text.padEnd(most)).account(ADDRESS)).balance, 1n);
  assert.equal(await codeOf(answering(text.padEnd(most + 1)).account(ADDRESS)), "node-unreachable");
  assert.equal((await answering("x".repeat(most + 1)).text("/rpc/proof/chain")).text, null);
  assert.equal(await codeOf(answering(text, 302).account(ADDRESS)), "node-unreachable");
});

test("a statement whose pages begin again, do not end, or have more entries than were asked for makes no sense", async () => {
  const page = (next, entries = []) => JSON.stringify({ address: ADDRESS, entries, next });
  for (const [each, most] of [
    [() => page("a"), 2],
    [(at) => page(["a", "b"][at % 2]), 3],
    [(at) => page(`${at}`), 1001],
    [(at) => page(`${at}`).padEnd(4 * 1024 * 1024), 17],
    [() => page(null, Array.from({ length: 501 }, () => 0)), 1],
  ]) {
    const { node, asked } = stating(each);
    assert.equal(await codeOf(statementOf(node, ADDRESS, odd)), "node-unreachable");
    assert.equal(asked.length, most);
  }
});
