// The statement of an address, page by page.

import { answerPages } from "./answer-pages.mjs";
import { PRUNED } from "./answers.mjs";

/** @import { Node } from "./node.mjs" */
/** @import { Entry } from "./statement-csv.mjs" */

/** How often a statement is read anew while the node deletes the blocks at which it begins. */
const TRIES = 3;
/** Entries of a page. */
const MOST = 500;

/** All changes of the balance of an address in the blocks that the node has, the oldest first, and the height of the
 * first of these blocks: 0 if the node has all. Throws what `odd` makes for an answer that makes no sense.
 * @type {(node: Node, address: string, odd: () => Error) => Promise<{ entries: Entry[], first: bigint }>} */
export async function statementOf(node, address, odd) {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const first = await node.firstBlock();
    const entries = await entriesOf(node, address, first === null ? "" : `&from=${first.time}`, odd);
    if (entries !== null) return { entries, first: first?.height ?? 0n };
  }
  throw odd();
}

/** All entries, or null if the node has deleted the first blocks of what is left meanwhile.
 * @type {(node: Node, address: string, from: string, odd: () => Error) => Promise<Entry[] | null>} */
async function entriesOf(node, address, from, odd) {
  /** @type {Entry[]} */
  const entries = [];
  const path = `/rpc/address/${address}/statement?limit=${MOST}${from}`;
  for await (const { status, answer } of answerPages(node, path, odd)) {
    if (status === PRUNED) return null;
    const listed = answer?.address === address ? answer.entries : null;
    if (status !== 200 || !Array.isArray(listed) || listed.length > MOST) throw odd();
    entries.push(...listed);
  }
  return entries;
}
