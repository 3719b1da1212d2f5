// QR codes, drawn here: a node could draw another one, and whoever scans it would pay somebody else.
//
// ISO/IEC 18004: the smallest version that has room, error correction L, byte mode, mask 2.

import { utf8 } from "./bytes.mjs";

const QUIET_ZONE = 4;
/** For each version from 1 on the bytes of error correction of a block, and the number of blocks. */
const CORRECTION = [7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26];
const BLOCKS = [1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4];
/** Level L and mask 2 with their own error correction. */
const FORMAT = 0b111110110101010;
/** The polynomial of the field of bytes, x^8 + x^4 + x^3 + x^2 + 1, and that of the error correction of a version. */
const FIELD = 0x11d;
const VERSION = 0x1f25;

/** @type {(version: number) => number} */
const sizeOf = (version) => 17 + 4 * version;

/** @type {(version: number) => number[]} */
function alignments(version) {
  if (version === 1) return [];
  const between = Math.floor(version / 7) + 1;
  const last = sizeOf(version) - 7;
  const step = 2 * Math.ceil((last - 6) / between / 2);
  return [6, ...Array.from({ length: between }, (_, at) => last - (between - 1 - at) * step)];
}

/** @type {(one: number, other: number) => number} */
function product(one, other) {
  let sum = 0;
  for (let bit = 7; bit >= 0; bit -= 1) sum = (sum << 1) ^ (sum >> 7 ? FIELD : 0) ^ (((other >> bit) & 1) * one);
  return sum;
}

/** The bytes of error correction of a block.
 * @type {(block: number[], length: number) => number[]} */
function correctionOf(block, length) {
  let divisor = [1];
  for (let root = 1, power = 0; power < length; power += 1, root = product(root, 2)) {
    const scaled = divisor.map((each) => product(each, root));
    divisor = [...divisor, 0].map((each, at) => each ^ (scaled[at - 1] ?? 0));
  }
  const rest = [...block, ...Array(length).fill(0)];
  for (let at = 0; at < block.length; at += 1) {
    const factor = rest[at];
    divisor.forEach((each, place) => (rest[at + place] ^= product(each, factor)));
  }
  return rest.slice(block.length);
}

/** The bytes of the text, with its length, what fills them up, and the error correction, in the order of the code.
 * @type {(bytes: number[], version: number, room: number) => number[]} */
function codewords(bytes, version, room) {
  const [blocks, correction] = [BLOCKS[version - 1], CORRECTION[version - 1]];
  const length = room - blocks * correction;
  const { length: count } = bytes;
  // Four bits of the mode and 8 or 16 of the length, so that each byte is in two.
  const counted = version < 10 ? [count >> 4, count & 15] : [12, 8, 4, 0].map((bit) => (count >> bit) & 15);
  const nibbles = [4, ...counted, ...bytes.flatMap((byte) => [byte >> 4, byte & 15]), 0];
  const data = Array.from({ length: nibbles.length / 2 }, (_, at) => (nibbles[2 * at] << 4) | nibbles[2 * at + 1]);
  for (let fill = 0xec; data.length < length; fill ^= 0xec ^ 0x11) data.push(fill);
  const short = Math.floor(length / blocks);
  const longFrom = blocks - (length % blocks);
  let from = 0;
  const parts = Array.from({ length: blocks }, (_, at) => data.slice(from, (from += short + Number(at >= longFrom))));
  const corrections = parts.map((part) => correctionOf(part, correction));
  /** @type {(lists: number[][]) => number[]} */
  const interleaved = (lists) =>
    Array.from({ length: lists[lists.length - 1].length }, (_, at) => lists.map((list) => list[at]))
      .flat()
      .filter((each) => each !== undefined);
  return [...interleaved(parts), ...interleaved(corrections)];
}

/** The rows of dark modules that do not depend on the text; null where the text goes.
 * @type {(version: number) => (boolean | null)[][]} */
function frame(version) {
  const size = sizeOf(version);
  const rows = Array.from({ length: size }, () => /** @type {(boolean | null)[]} */ (Array(size).fill(null)));
  /** @type {(x: number, y: number, radius: number) => void} */
  const square = (x, y, radius) => {
    for (let row = Math.max(y - radius, 0); row <= Math.min(y + radius, size - 1); row += 1)
      for (let column = Math.max(x - radius, 0); column <= Math.min(x + radius, size - 1); column += 1) {
        const distance = Math.max(Math.abs(column - x), Math.abs(row - y));
        rows[row][column] = radius === 4 ? distance !== 2 && distance !== 4 : distance !== 1;
      }
  };
  for (let at = 0; at < size; at += 1) rows[6][at] = rows[at][6] = at % 2 === 0;
  for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) square(x, y, 4);
  const centres = alignments(version);
  const [first, last] = [6, size - 7];
  for (const y of centres)
    for (const x of centres)
      // Not where the three great squares are.
      if (!(x === first && (y === first || y === last)) && !(x === last && y === first)) square(x, y, 2);
  for (let bit = 0; bit < 15; bit += 1) {
    const dark = ((FORMAT >> bit) & 1) === 1;
    // Beside the upper left square, around the timing, and again in two parts beside the others.
    if (bit < 8) rows[bit < 6 ? bit : bit + 1][8] = dark;
    else rows[8][bit === 8 ? 7 : 14 - bit] = dark;
    if (bit < 8) rows[8][size - 1 - bit] = dark;
    else rows[size - 15 + bit][8] = dark;
  }
  rows[size - 8][8] = true;
  if (version < 7) return rows;
  let rest = version;
  for (let bit = 0; bit < 12; bit += 1) rest = (rest << 1) ^ ((rest >> 11) * VERSION);
  for (let bit = 0; bit < 18; bit += 1) {
    const dark = (((version << 12) | rest) >> bit) % 2 === 1;
    const [far, near] = [size - 11 + (bit % 3), Math.floor(bit / 3)];
    rows[near][far] = rows[far][near] = dark;
  }
  return rows;
}

/** How many bytes are in the free modules.
 * @type {(rows: (boolean | null)[][]) => number} */
const roomIn = (rows) => Math.floor(rows.flat().filter((each) => each === null).length / 8);

/** The QR code of a text: its side in modules with a quiet zone, and the dark ones as the path of an SVG of that size.
 *
 * Throws a RangeError for a text of more than 425 bytes.
 * @type {(text: string) => { side: number, path: string }} */
function qrCode(text) {
  const bytes = [...utf8(text)];
  for (let version = 1; version <= BLOCKS.length; version += 1) {
    const rows = frame(version);
    const room = roomIn(rows);
    const taken = version < 10 ? 2 : 3;
    if (bytes.length > room - BLOCKS[version - 1] * CORRECTION[version - 1] - taken) continue;
    const path = drawn(rows, codewords(bytes, version, room));
    return { side: rows.length + 2 * QUIET_ZONE, path };
  }
  throw new RangeError("the text is too long for a code");
}

/** @type {(rows: (boolean | null)[][], bytes: number[]) => string} */
function drawn(rows, bytes) {
  const { length: size } = rows;
  const bits = bytes.flatMap((byte) => [7, 6, 5, 4, 3, 2, 1, 0].map((bit) => ((byte >> bit) & 1) === 1));
  let next = 0;
  for (let right = size - 1; right > 0; right -= 2) {
    // The timing takes a column.
    if (right === 6) right = 5;
    for (let step = 0; step < size; step += 1) {
      const y = (right + 1) & 2 ? step : size - 1 - step;
      for (const x of [right, right - 1]) rows[y][x] ??= (bits[next++] ?? false) !== (x % 3 === 0);
    }
  }
  const modules = rows.flatMap((row, y) => row.map((dark, x) => dark && `M${x + QUIET_ZONE} ${y + QUIET_ZONE}h1v1h-1z`));
  return modules.filter(Boolean).join("");
}

/** Draw the QR code of a text into an SVG that has a rectangle and a path.
 * @type {(where: Element, text: string) => void} */
export function drawCode(where, text) {
  const { side, path } = qrCode(text);
  where.setAttribute("viewBox", `0 0 ${side} ${side}`);
  for (const name of ["width", "height"]) where.querySelector("rect")?.setAttribute(name, `${side}`);
  where.querySelector("path")?.setAttribute("d", path);
}
