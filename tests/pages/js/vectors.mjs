// The vectors that Python and the pages share (tests/vectors), and how faults are told.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

export const vectors = (name) =>
  JSON.parse(readFileSync(new URL(`../../vectors/${name}.json`, import.meta.url), "utf8"));

/** The word list that nodes serve; tests/pages/test_javascript.py says where it is. */
export const listText = () => readFileSync(process.env.SVC_WORD_LIST, "utf8");

/** The code and the sentence of the Problem that `work` throws or rejects with. */
export async function problemOf(work) {
  try {
    await (typeof work === "function" ? work() : work);
  } catch (problem) {
    assert.equal(problem.name, "Problem", problem.stack);
    return { code: problem.code, sentence: problem.message };
  }
  return assert.fail("nothing was refused");
}

export const codeOf = async (work) => (await problemOf(work)).code;
