// The QR code of an address, drawn here: a node could draw another one, and whoever scans it would pay somebody else.
//
// ISO/IEC 18004: version 3, error correction L, byte mode, mask 2, which addresses of both networks fit.

import { utf8 } from "./bytes.mjs";

const SIZE = 29;
const QUIET_ZONE = 4;
const DATA = 55;
const CORRECTION = 15;
/** The centre of the alignment pattern. */
const ALIGNMENT = 22;
/** Level L and mask 2 with their own error correction. */
const FORMAT = 0b111110110101010;
/** The polynomial of the field of bytes, x^8 + x^4 + x^3 + x^2 + 1. */
const FIELD = 0x11d;

/** @type {(one: number, other: number) => number} */
function product(one, other) {
  let sum = 0;
  for (let bit = 7; bit >= 0; bit -= 1) sum = (sum << 1) ^ (sum >> 7 ? FIELD : 0) ^ (((other >> bit) & 1) * one);
  return sum;
}

/** The bytes of the text, with its length, what fills them up, and the error correction.
 * @type {(text: string) => number[]} */
function codewords(text) {
  const bytes = [...utf8(text)];
  if (bytes.length > DATA - 2) throw new RangeError("the text is too long for this code");
  // Four bits of the mode, eight of the length, so that each byte is in two.
  const nibbles = [4, bytes.length >> 4, bytes.length & 15, ...bytes.flatMap((byte) => [byte >> 4, byte & 15]), 0];
  const data = Array.from({ length: nibbles.length / 2 }, (_, at) => (nibbles[2 * at] << 4) | nibbles[2 * at + 1]);
  for (let fill = 0xec; data.length < DATA; fill ^= 0xec ^ 0x11) data.push(fill);
  let divisor = [1];
  for (let root = 1, power = 0; power < CORRECTION; power += 1, root = product(root, 2)) {
    const scaled = divisor.map((each) => product(each, root));
    divisor = [...divisor, 0].map((each, at) => each ^ (scaled[at - 1] ?? 0));
  }
  const rest = [...data, ...Array(CORRECTION).fill(0)];
  for (let at = 0; at < DATA; at += 1) {
    const factor = rest[at];
    divisor.forEach((each, place) => (rest[at + place] ^= product(each, factor)));
  }
  return [...data, ...rest.slice(DATA)];
}

/** The rows of dark modules that do not depend on the text; null where the text goes.
 * @type {() => (boolean | null)[][]} */
function frame() {
  const rows = Array.from({ length: SIZE }, () => /** @type {(boolean | null)[]} */ (Array(SIZE).fill(null)));
  /** @type {(x: number, y: number, radius: number) => void} */
  const square = (x, y, radius) => {
    for (let row = Math.max(y - radius, 0); row <= Math.min(y + radius, SIZE - 1); row += 1)
      for (let column = Math.max(x - radius, 0); column <= Math.min(x + radius, SIZE - 1); column += 1) {
        const distance = Math.max(Math.abs(column - x), Math.abs(row - y));
        rows[row][column] = radius === 4 ? distance !== 2 && distance !== 4 : distance !== 1;
      }
  };
  for (let at = 0; at < SIZE; at += 1) rows[6][at] = rows[at][6] = at % 2 === 0;
  for (const [x, y] of [[3, 3], [SIZE - 4, 3], [3, SIZE - 4]]) square(x, y, 4);
  square(ALIGNMENT, ALIGNMENT, 2);
  for (let bit = 0; bit < 15; bit += 1) {
    const dark = ((FORMAT >> bit) & 1) === 1;
    // Beside the upper left square, around the timing, and again in two parts beside the others.
    if (bit < 8) rows[bit < 6 ? bit : bit + 1][8] = dark;
    else rows[8][bit === 8 ? 7 : 14 - bit] = dark;
    if (bit < 8) rows[8][SIZE - 1 - bit] = dark;
    else rows[SIZE - 15 + bit][8] = dark;
  }
  rows[SIZE - 8][8] = true;
  return rows;
}

/** The dark modules of the code of an address as the path of an SVG of 37 × 37, with a quiet zone.
 * @type {(address: string) => string} */
export function qrPath(address) {
  const rows = frame();
  const bits = codewords(address).flatMap((byte) => [7, 6, 5, 4, 3, 2, 1, 0].map((bit) => ((byte >> bit) & 1) === 1));
  for (let right = SIZE - 1; right > 0; right -= 2) {
    // The timing takes a column.
    if (right === 6) right = 5;
    for (let step = 0; step < SIZE; step += 1) {
      const y = (right + 1) & 2 ? step : SIZE - 1 - step;
      for (const x of [right, right - 1]) rows[y][x] ??= (bits.shift() ?? false) !== (x % 3 === 0);
    }
  }
  const modules = rows.flatMap((row, y) => row.map((dark, x) => dark && `M${x + QUIET_ZONE} ${y + QUIET_ZONE}h1v1h-1z`));
  return modules.filter(Boolean).join("");
}
