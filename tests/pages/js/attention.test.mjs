import assert from "node:assert/strict";
import { test } from "node:test";

import { Attention } from "../../../svcd/pages/static/attention.mjs";
import { Node } from "../../../svcd/pages/static/node.mjs";
import { Devnet } from "./devnet.mjs";
import { codeOf } from "./vectors.mjs";

function opened(hidden) {
  const page = Object.assign(new EventTarget(), { hidden });
  const turn = (to) => {
    page.hidden = to;
    page.dispatchEvent(new Event("visibilitychange"));
  };
  const attention = new Attention(page);
  const devnet = new Devnet();
  return { attention, turn, devnet, node: new Node(devnet.fetch, () => attention.ready()) };
}

/** Give everything that can go on the time to do so. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

test("a page that is looked at asks at once", async () => {
  const { node, devnet } = opened(false);
  await node.view();
  assert.deepEqual(devnet.asked, ["/rpc/status"]);
});

test("a hidden page asks nothing, not even what it was about to ask, until it is shown", async () => {
  const { node, devnet, turn } = opened(false);
  const asking = (async () => {
    await node.view();
    turn(true);
    return node.fee();
  })();
  await settled();
  assert.deepEqual(devnet.asked, ["/rpc/status"]);
  turn(true);
  await settled();
  assert.deepEqual(devnet.asked, ["/rpc/status"]);
  turn(false);
  assert.equal(await asking, 10_000n);
});

test("a transfer is handed in also by a hidden page", async () => {
  const { node, devnet } = opened(true);
  await node.broadcast("00", { senderAddress: "a", payload: {} }).catch(() => {});
  assert.deepEqual(devnet.asked, ["/rpc/broadcast"]);
});

test("what the person has begun does not wait, nor does what waited before", async () => {
  const { attention, node, devnet } = opened(true);
  const waiting = node.fee();
  await settled();
  assert.deepEqual(devnet.asked, []);
  await attention.urgently(() => node.view());
  await waiting;
  assert.deepEqual(devnet.asked.sort(), ["/rpc/fees", "/rpc/status"]);
  const later = node.fee();
  await settled();
  assert.equal(devnet.asked.length, 2, "it waits again");
  attention.forget();
  assert.equal(await codeOf(later), "locked");
});

test("after a lock nothing is asked that waited", async () => {
  const { attention, node, devnet, turn } = opened(true);
  const waiting = node.view();
  attention.forget();
  assert.equal(await codeOf(waiting), "locked");
  turn(false);
  await settled();
  assert.deepEqual(devnet.asked, []);
});
