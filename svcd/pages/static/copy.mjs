// Copy buttons: shown by this script, because without it they could do nothing.

import { message } from "./texts.mjs";

/** @typedef {Pick<Clipboard, "writeText">} Writing */
/** @typedef {(work: () => void, milliseconds: number) => unknown} Later */

const SAID_FOR = 1500;

/** Put `text` on the clipboard; false where the browser does not let us (an insecure origin, no permission).
 * @type {(text: string, clipboard?: Writing) => Promise<boolean>} */
export async function copyText(text, clipboard = globalThis.navigator?.clipboard) {
  try {
    await clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Say on the button itself whether it worked, then put its words back.
 * @type {(button: HTMLElement, clipboard?: Writing, later?: Later) => Promise<void>} */
export async function press(button, clipboard, later = setTimeout) {
  const words = /** @type {Text} */ (button.firstChild);
  const before = button.dataset.words ?? words.data;
  button.dataset.words = before;
  words.data = (await copyText(button.dataset.copy ?? "", clipboard)) ? message("script.copied") : message("script.not-allowed");
  later(() => {
    words.data = before;
  }, SAID_FOR);
}

/** @type {(page: Document) => void} */
function begin(page) {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (page.querySelectorAll("button[data-copy]"))) {
    button.hidden = false;
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", () => press(button));
  }
}

if (globalThis.document) {
  begin(document);
}
