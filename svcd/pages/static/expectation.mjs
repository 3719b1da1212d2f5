// When the next blocks are to be expected, as svcd/pages/expectation.py says it.

import { siteData } from "./site-data.mjs";
import { message, timeLeft } from "./texts.mjs";

/** @typedef {{ syncing: boolean, time: number, tipTime: number }} Clock whether the node may lack the newest blocks, its
 * time, and that of its newest block, in Unix milliseconds. */
/** @typedef {{ blockSeconds: number | null, idleSeconds: number | null }} Timing
 * `blockSeconds`: between two blocks on average, null where the operator makes all of them by hand. After `idleSeconds`
 * without a new block no time is promised; null: that does not matter. */

/** The seconds between two blocks where a time may be promised, and otherwise null.
 * @type {(clock: Clock, timing: Timing) => number | null} */
export const secondsPerBlock = ({ syncing, time, tipTime }, { blockSeconds, idleSeconds }) =>
  !syncing && time - tipTime <= 1000 * (idleSeconds ?? Infinity) ? blockSeconds : null;

/** How long so many blocks still take, as a sentence without its point, by what is known of the node; null: nothing yet.
 * @type {(blocks: number, clock: Clock | null, timing?: Timing) => string} */
export function blocksLeft(blocks, clock, timing = siteData()) {
  if (clock?.syncing) return message("script.time-unknown");
  const seconds = clock && secondsPerBlock(clock, timing);
  return seconds === null ? message("script.next-block") : timeLeft(blocks * seconds);
}
