// Makes calls of which it reads the names, a JSON array a line, and says how each has ended.

import { createInterface } from "node:readline";

/** What the calls are about. */
export const given = JSON.parse(process.argv[2]);

async function ended(call, kindOf) {
  try {
    await call();
    return { kind: "answered" };
  } catch (error) {
    return { kind: kindOf(error), sentence: String(error.message) };
  }
}

/** Take orders for these calls until the input ends. */
export async function serve(calls, kindOf) {
  const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
  say(Object.keys(calls));
  for await (const line of createInterface({ input: process.stdin })) {
    const names = JSON.parse(line);
    const outcomes = await Promise.all(names.map((name) => ended(calls[name], kindOf)));
    say(Object.fromEntries(names.map((name, at) => [name, outcomes[at]])));
  }
  process.exit();
}
