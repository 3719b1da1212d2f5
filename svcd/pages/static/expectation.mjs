// When the next blocks are to be expected, as svcd/pages/expectation.py says it.

import { siteData } from "./site-data.mjs";
import { message, timeLeft } from "./texts.mjs";

/** @import { View } from "./node.mjs" */
/** @typedef {{ blockSeconds: number | null, idleSeconds: number | null }} Timing
 * `blockSeconds`: between two blocks on average, null where the operator makes all of them by hand. After `idleSeconds`
 * without a new block no time is promised; null: that does not matter. */

/** How long so many blocks still take, as a sentence without its point, by what is known of the node; null: nothing yet.
 * @type {(blocks: number, view: Pick<View, "syncing" | "time" | "tipTime"> | null, timing?: Timing) => string} */
export function blocksLeft(blocks, view, { blockSeconds, idleSeconds } = siteData()) {
  if (view?.syncing) return message("script.time-unknown");
  const isMoving = view !== null && view.time - view.tipTime <= 1000 * (idleSeconds ?? Infinity);
  return isMoving && blockSeconds !== null ? timeLeft(blocks * blockSeconds) : message("script.next-block");
}
