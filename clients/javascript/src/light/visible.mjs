// Escapes the invisible characters of untrusted text (docs/pages.md "Untrusted text").
// svcd/visible_text.py says the same for the pages that the server makes.

const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu;
const PICTURE = /^[^\P{So}\u2800]$/u;
const JOINED = /^(?:[^\P{So}\u2800]|\ufe0e|\ufe0f|[\u{1f3fb}-\u{1f3ff}])$/u;

/** One character in ASCII.
 * @type {(odd: string) => string} */
export const escaped = (odd) => `\\u{${(odd.codePointAt(0) ?? 0).toString(16)}}`;

/** Whether the character chooses the style of the picture before it, or joins that to the one behind it.
 * @type {(odd: string, before: string, after: string) => boolean} */
function isOfPicture(odd, before, after) {
  if (odd === "\ufe0e" || odd === "\ufe0f") return PICTURE.test(before);
  return odd === "\u200d" && PICTURE.test(after) && JOINED.test(before);
}

/** `text` with everything in it to be seen: a zero-width space is written `\u{200b}`. Emoji stay as they are.
 * @type {(text: string) => string} */
export function visible(text) {
  return text.replace(UNSEEN, (odd, place) => {
    const before = [...text.slice(0, place)].at(-1) ?? "";
    const [after = ""] = text.slice(place + odd.length);
    return isOfPicture(odd, before, after) ? odd : escaped(odd);
  });
}
