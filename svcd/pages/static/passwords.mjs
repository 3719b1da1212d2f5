// Judges new passwords as `svc` does (svcd/cli/passwords.py): how many bits an attacker needs who tries common ones first.

/** @typedef {"invisible" | "short" | "repeated" | "sequential" | "common" | "guessable"} Weakness in the order of Python's */
/** @typedef {{ bits: number, covered: Partial<Record<Weakness, number>> }} Estimate */
/** @typedef {{ end: number, bits: number, weakness?: Weakness }} Part of a password */

/** The least characters of a new password. */
export const MIN_LENGTH = 10;
const ENOUGH = 40;
const JUDGED = 64;
const SHORTEST_SEQUENCE = 3;
const FORWARDS = [
  "abcdefghijklmnopqrstuvwxyz",
  "01234567890",
  "!@#$%^&*()",
  ...["qwertyuiop", "qwertzuiop", "azertyuiop", "asdfghjkl", "qsdfghjklm", "zxcvbnm", "yxcvbnm", "wxcvbn"],
];
const SEQUENCES = [...FORWARDS, ...FORWARDS.map((sequence) => [...sequence].reverse().join(""))];
/** Digits and signs in the place of letters; 1 and ! are i or l. */
const SIGNS = "@4310!$57";
const SUBSTITUTES = ["aaeioisst", "aaelolsst"];

/** A character that nobody sees, or a space that nobody can tell from the usual one (svcd/visible_text.py). */
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/u;

/** The bit length of an integer above zero.
 * @type {(value: number) => number} */
const bitLength = (value) => 32 - Math.clz32(value);

/** @type {(text: string) => string} */
const lowered = (text) => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());

/** @type {(character: string) => number} */
function bitsOfCharacter(character) {
  if (" -_.".includes(character)) return 2;
  if (/^[0-9]$/.test(character)) return 3;
  return /^[a-z]$/.test(character) ? 5 : 6;
}

/** The bits of a common password in any case, and with digits in the place of letters; Infinity for another text.
 * @type {(piece: string, ranks: Map<string, number>) => number} */
function bitsOfWord(piece, ranks) {
  const lower = lowered(piece);
  const costs = SUBSTITUTES.map((letters) => {
    const rank = ranks.get(lower.replace(/[@4310!$57]/g, (sign) => letters[SIGNS.indexOf(sign)]));
    return rank === undefined ? Infinity : bitLength(rank) + 1;
  });
  const rank = ranks.get(lower);
  return Math.min(...costs, rank === undefined ? Infinity : bitLength(rank)) + Number(lower !== piece);
}

/** The parts that begin at `start`.
 * @type {(text: string[], start: number, ranks: Map<string, number>, known: Map<string, Estimate>) => Part[]} */
function partsAt(text, start, ranks, known) {
  /** @type {Part[]} */
  const parts = [{ end: start + 1, bits: bitsOfCharacter(text[start]) }];
  for (let end = start + SHORTEST_SEQUENCE; end <= text.length; end += 1) {
    const piece = text.slice(start, end).join("");
    const run = SEQUENCES.some((sequence) => sequence.includes(lowered(piece)));
    if (run) parts.push({ end, bits: 5 + bitLength(end - start), weakness: "sequential" });
    const bits = bitsOfWord(piece, ranks);
    if (bits < Infinity) parts.push({ end, bits, weakness: "common" });
  }
  if (/^(?:19|20)[0-9]{2}$/.test(text.slice(start, start + 4).join(""))) parts.push({ end: start + 4, bits: 7 });
  for (let size = 1; size <= (text.length - start) / 2; size += 1) {
    const unit = text.slice(start, start + size);
    const again = (/** @type {number} */ from) => unit.every((character, place) => text[from + place] === character);
    for (let count = 2; again(start + (count - 1) * size); count += 1) {
      if (count * size < SHORTEST_SEQUENCE) continue;
      const bits = estimate(unit, ranks, known).bits + bitLength(count);
      parts.push({ end: start + count * size, bits, weakness: "repeated" });
    }
  }
  return parts;
}

/** The least bits that a text costs, and how many of its characters are in parts of each weakness.
 * @type {(text: string[], ranks: Map<string, number>, known: Map<string, Estimate>) => Estimate} */
function estimate(text, ranks, known) {
  const name = text.join("");
  const before = known.get(name);
  if (before) return before;
  /** @type {Estimate[]} */
  const best = [{ bits: 0, covered: {} }];
  for (let start = 0; start < text.length; start += 1) {
    for (const { end, bits: more, weakness } of partsAt(text, start, ranks, known)) {
      const bits = best[start].bits + more;
      if (best[end] && bits >= best[end].bits) continue;
      const covered = { ...best[start].covered };
      if (weakness) covered[weakness] = (covered[weakness] ?? 0) + end - start;
      best[end] = { bits, covered };
    }
  }
  const whole = best[text.length];
  known.set(name, whole);
  return whole;
}

/** The bits of a password, and what is weak about it, or null; `ranks` has the common ones, from 1.
 * @type {(password: string, ranks: Map<string, number>) => { bits: number, weakness: Weakness | null }} */
export function judge(password, ranks) {
  const text = [...password.normalize("NFC")];
  const judged = text.slice(0, JUDGED);
  const { bits, covered } = estimate(judged, ranks, new Map());
  if (UNSEEN.test(text.join(""))) return { bits, weakness: "invisible" };
  if (text.length < MIN_LENGTH) return { bits, weakness: "short" };
  if (bits >= ENOUGH) return { bits, weakness: null };
  /** @type {Weakness[]} */
  const kinds = ["repeated", "sequential", "common"];
  return { bits, weakness: kinds.find((kind) => 2 * (covered[kind] ?? 0) >= judged.length) ?? "guessable" };
}

/** The rank of each common password in the text of the list, from 1.
 * @type {(text: string) => Map<string, number>} */
export function ranksIn(text) {
  const words = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(words.map((word, place) => [word, place + 1]));
}
