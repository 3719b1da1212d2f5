// Links that say at once that they were pressed, and whether an app has taken them.

/** Milliseconds in which a browser gives a link to an app, if there is one for it. */
const TAKEN_WITHIN = 1_000;
/** Milliseconds after which a page that has not come can be asked for again. */
const COMES_WITHIN = 8_000;

/** @typedef {Pick<typeof globalThis, "setTimeout">} Timers */

/** Call `pressed` when a link is followed in this tab: it shows the words of `data-busy` until what is given is called.
 * @type {(link: HTMLElement, pressed: (restore: () => void) => void) => void} */
function onPress(link, pressed) {
  const words = link.textContent;
  const restore = () => {
    link.textContent = words;
    link.removeAttribute("aria-busy");
  };
  link.addEventListener("click", ({ ctrlKey, metaKey, shiftKey }) => {
    if (ctrlKey || metaKey || shiftKey || link.hasAttribute("aria-busy")) return;
    link.textContent = link.dataset.busy ?? words;
    link.setAttribute("aria-busy", "true");
    pressed(restore);
  });
}

/** A link to another page: it says that it was pressed until that page is there, or somebody has come back from it.
 * @type {(link: HTMLElement, view?: EventTarget, timers?: Timers) => void} */
export function leadsOn(link, view = globalThis, timers = globalThis) {
  onPress(link, (restore) => {
    view.addEventListener("pageshow", restore, { once: true });
    timers.setTimeout(restore, COMES_WITHIN);
  });
}

/** A link for an app: `untaken` is called if the page has stayed in front, so that nothing has taken the link.
 * @type {(link: HTMLElement, untaken: () => void, page?: Document, view?: EventTarget, timers?: Timers) => void} */
export function leadsToApp(link, untaken, page = document, view = globalThis, timers = globalThis) {
  onPress(link, (restore) => {
    let taken = false;
    const leave = () => {
      taken = true;
    };
    // An app in front hides the page; the question whether to open one takes its focus.
    view.addEventListener("blur", leave, { once: true });
    timers.setTimeout(() => {
      view.removeEventListener("blur", leave);
      restore();
      if (!taken && page.visibilityState === "visible") untaken();
    }, TAKEN_WITHIN);
  });
}
