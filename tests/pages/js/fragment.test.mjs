import assert from "node:assert/strict";
import { test } from "node:test";

import { fragmentOf, fragmentWithQuery, readFragment } from "../../../svcd/pages/static/fragment.mjs";

const LINK = "pay=svc%3Aa%3Famount%3D1%26ref%3DA&returnUrl=https%3A%2F%2Fshop.example%2F&until=5";

test("a fragment names a view, a link or both", () => {
  const read = (hash) => {
    const { view, name, argument, link } = readFragment(hash);
    assert.equal(view, argument === undefined ? name : `${name}=${argument}`);
    return [name, argument, link];
  };
  assert.deepEqual(read(""), ["", undefined, ""]);
  assert.deepEqual(read("#home"), ["home", undefined, ""]);
  assert.deepEqual(read("#payment=ab"), ["payment", "ab", ""]);
  assert.deepEqual(read(`#transfer=ab&${LINK}`), ["transfer", "ab", LINK]);
  assert.deepEqual(read(`#${LINK}`), ["", undefined, LINK]);
  assert.deepEqual(read(`#home&${LINK}`), ["home", undefined, LINK]);
  assert.deepEqual(read(`#payment=ab&${LINK}`), ["payment", "ab", LINK]);
  assert.deepEqual(read(`#utm=1&${LINK}`), ["", undefined, `utm=1&${LINK}`]);
  assert.deepEqual(read("#utm=1"), ["", undefined, ""], "without pay= it is no link");
});

test("what is written is read", () => {
  for (const view of ["", "home", "payment=ab"])
    for (const link of ["", LINK]) {
      const { view: name, link: read } = readFragment(fragmentOf(view, link));
      assert.deepEqual([name, read], [view, link]);
    }
  assert.equal(fragmentOf("", ""), "");
});

test("a link in the query moves into the fragment", () => {
  const moved = (search, hash) => fragmentWithQuery({ search, hash });
  assert.equal(moved(`?${LINK}`, ""), `#${LINK}`);
  assert.equal(moved(`?${LINK}`, "#home"), `#home&${LINK}`);
  assert.equal(moved("?pay=a", "#pay=b"), "#pay=a&pay=b", "two links stay two, and are refused");
  assert.equal(moved("?pay=svc:x?amount=1&ref=A", ""), "#pay=svc:x?amount=1&ref=A");
  for (const search of ["", "?", "?payment=a", "?returnUrl=x"]) assert.equal(moved(search, "#home"), null);
});
