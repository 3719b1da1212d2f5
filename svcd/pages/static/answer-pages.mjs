// A list of the node that comes in pages.

import { pages } from "./answers.mjs";

/** @import { Node } from "./node.mjs" */

/** The answers of the node to `path`, whose query ends with the limit, and then to `path` from the `next` of each on.
 *
 * Throws what `odd` makes for an answer that makes no sense; the reader looks at each answer before it takes the next one.
 * @type {(node: Pick<Node, "ask">, path: string, odd: () => Error) => AsyncGenerator<Awaited<ReturnType<Node["ask"]>>>} */
export const answerPages = async function* (node, path, odd) {
  const following = pages();
  for (let after = ""; ; ) {
    const told = await node.ask(`${path}${after}`);
    yield told;
    const next = told.answer?.next;
    if (typeof next !== "string") return;
    try {
      after = `&after=${encodeURIComponent(following(next, told.size))}`;
    } catch {
      throw odd();
    }
  }
};
