// What nobody would see is written out, in scripts as on the pages of the server (tests/pages/test_visible.py).

import assert from "node:assert/strict";
import { test } from "node:test";

import { quoted } from "../../../svcd/pages/static/problem.mjs";
import { visible } from "../../../svcd/pages/static/visible.mjs";
import { vectors } from "./vectors.mjs";

for (const { name, text, shown } of vectors("visible").texts) {
  test(name, () => assert.equal(visible(text), shown));
}

test("text of others in a sentence", () => {
  assert.equal(quoted("a\u00ad\u034f\u202e\u200b\u{1f600}b"), "“a\\u{ad}\\u{34f}\\u{202e}\\u{200b}\\u{1f600}b”");
});
