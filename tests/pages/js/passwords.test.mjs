import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { judge, ranksIn } from "../../../svcd/pages/static/passwords.mjs";
import { checkPassword } from "../../../svcd/pages/static/wallet-passwords.mjs";
import { listText, problemOf, vectors } from "./vectors.mjs";

const common = readFileSync(new URL("../../../svcd/pages/static/common-passwords.txt", import.meta.url), "utf8");
const ranks = ranksIn(common);

test("the list has 10,000 passwords, and none of its licence", () => {
  assert.equal(ranks.size, 10_000);
  assert.equal(ranks.get("123456"), 1);
  assert.ok([...ranks.keys()].every((word) => /^[a-z0-9]{4,16}$/.test(word)));
});

for (const { password, bits, weakness } of vectors("passwords").passwords) {
  test(`judged as by svc: ${password.slice(0, 40)}`, () => assert.deepEqual(judge(password, ranks), { bits, weakness }));
}

/** Serve the two lists as a node does, and count what is asked for. */
function serve(context, lists) {
  const asked = [];
  context.mock.method(globalThis, "fetch", async (path) => {
    asked.push(path);
    return path in lists ? new Response(lists[path]) : new Response("", { status: 404 });
  });
  return asked;
}
const LISTS = { "/static/common-passwords.txt": common, "/static/bip39-english.txt": listText() };

test("a refusal suggests six random words, which are accepted", async (context) => {
  serve(context, LISTS);
  const seen = new Set();
  for (const [password, code] of [["123456789", "password-short"], ["Password123", "password-weak"]]) {
    const problem = await problemOf(checkPassword(password));
    assert.equal(problem.code, code);
    const [, words] = /six random words: ([a-z]+(?: [a-z]+){5})\.$/.exec(problem.sentence);
    await checkPassword(words);
    seen.add(words);
  }
  assert.equal(seen.size, 2);
});

test("an accepted password needs one list only", async (context) => {
  const asked = serve(context, LISTS);
  await checkPassword("correct horse battery staple");
  assert.deepEqual(asked, ["/static/common-passwords.txt"]);
});

test("without the list no password is accepted", async (context) => {
  serve(context, {});
  assert.equal((await problemOf(checkPassword("correct horse battery staple"))).code, "node-unreachable");
});

test("another word list is not used", async (context) => {
  serve(context, { ...LISTS, "/static/bip39-english.txt": listText().replace("zoo", "zzz") });
  assert.equal((await problemOf(checkPassword("Password123"))).code, "node-unreachable");
});
