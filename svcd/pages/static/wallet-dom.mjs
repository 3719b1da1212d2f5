// What all views of the wallet do with the page. Text goes in as text: nothing here makes HTML out of strings.

import { digitNodes, UNIT } from "./digits.mjs";
import { Problem } from "./problem.mjs";
import { localTime, message } from "./texts.mjs";
import { formatAmount } from "./units.mjs";
import { visible } from "./visible.mjs";

/** The element of the page with this id, which is of this kind; throws a TypeError if there is none.
 * @template {HTMLElement} [K=HTMLElement]
 * @param {string} id
 * @param {new () => K} [kind]
 * @returns {K} */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof (kind ?? HTMLElement))) throw new TypeError(`element ${id}`);
  return /** @type {K} */ (found);
}

/** A new element with properties and children.
 * @template {keyof HTMLElementTagNameMap} N
 * @param {N} name
 * @param {Partial<HTMLElementTagNameMap[N]>} properties
 * @param {(string | globalThis.Node)[]} children */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

/** Write a text, unless it is there already: screen readers would say it again.
 * @type {(where: Element, text: string) => void} */
export function write(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

/** Write a sentence where it is to be seen, or hide the place for "".
 * @type {(where: HTMLElement, sentence: string) => void} */
export function say(where, sentence) {
  write(where, sentence);
  where.hidden = sentence === "";
}

/** Write base units as coins with their unit.
 * @type {(where: HTMLElement, units: bigint, sign?: string) => void} */
export function writeAmount(where, units, sign = "") {
  const text = `${sign}${formatAmount(units)}`;
  if (where.dataset.shown === text) return;
  where.dataset.shown = text;
  where.classList.toggle("long", where.classList.contains("big") && text.length > 12);
  where.replaceChildren(...digitNodes(text), " ", element("span", { className: "unit", textContent: UNIT }));
}

/** The Problem to show for what is none: a fault of this page.
 * @type {(problem: unknown) => Problem} */
function failure(problem) {
  console.error(problem);
  return new Problem("internal", message("wallet-script.page-failed", { problem: String(problem) }));
}

/** Show a Problem in an element, or nothing for null. What is no Problem is said to be a fault of this page.
 *
 * It may contain a node's own sentence, so nothing of it is hidden.
 * @type {(where: HTMLElement, problem: unknown) => void} */
export function tell(where, problem) {
  const told = problem === null || problem instanceof Problem ? problem : failure(problem);
  const sentence = told?.message ?? "";
  if (told) where.dataset.error = told.code;
  else delete where.dataset.error;
  write(where, visible(sentence));
  where.hidden = sentence === "";
}

/** Show one view and move the focus to its heading.
 * @type {(view: string) => void} */
export function show(view) {
  const { body } = document;
  const before = body.dataset.view;
  body.dataset.view = view;
  const sections = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("main > section"));
  for (const section of sections) section.hidden = section.dataset.view !== view;
  const heading = /** @type {HTMLElement} */ (document.querySelector(`main > section[data-view="${view}"] h1`));
  document.title = `${heading.textContent} · SVC`;
  if (before !== "loading" && before !== view) {
    window.scrollTo(0, 0);
    heading.focus({ preventScroll: true });
  }
}

/** Remember what is below `roots`; gives what brings it back. The elements stay, and with them who listens.
 * @type {(roots: Element[]) => () => void} */
export function remembered(roots) {
  const below = roots.flatMap((root) => [...root.querySelectorAll("*")]);
  const before = below.map((place) => ({
    place,
    attributes: [...place.attributes].map(({ name, value }) => ({ name, value })),
    children: [...place.childNodes],
  }));
  return () => {
    for (const { place, attributes, children } of before) {
      for (const name of place.getAttributeNames()) place.removeAttribute(name);
      for (const { name, value } of attributes) place.setAttribute(name, value);
      place.replaceChildren(...children);
    }
  };
}

let opening = 0;

/** The page is locked: of the work that is under way nobody is told any more how it has failed. */
export function abandonWork() {
  opening += 1;
}

/** What does `work`, and not again while it is under way; `failed` is told what it throws, but not after a lock.
 *
 * A button with `data-busy` shows these words meanwhile.
 * @type {(button: HTMLElement, work: () => unknown, failed: (problem: unknown) => void) => () => Promise<void>} */
function once(button, work, failed) {
  /** @type {number | null} */
  let busy = null;
  return async () => {
    if (busy === opening) return;
    const begun = opening;
    busy = begun;
    button.setAttribute("aria-busy", "true");
    const words = button.textContent;
    write(button, button.dataset.busy ?? words);
    try {
      await work();
    } catch (problem) {
      if (begun === opening) failed(problem);
    } finally {
      // After a lock the button may be busy with something else.
      if (busy === begun) {
        busy = null;
        button.removeAttribute("aria-busy");
        if (button.dataset.busy) write(button, words);
      }
    }
  };
}

/** Do `work` on a click, and not again while it is under way; `failed` is told what it throws.
 * @param {HTMLElement} button
 * @param {() => unknown} work
 * @param {(problem: unknown) => void} failed */
export function onClick(button, work, failed = console.error) {
  const click = once(button, work, failed);
  button.addEventListener("click", click);
}

/** Show no error in a form any more.
 * @type {(form: HTMLElement) => void} */
export function forgetErrors(form) {
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll("[data-error]"))) tell(place, null);
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

/** Do `work` when a form is sent, and not again while it is under way; what it throws is shown in `error`.
 *
 * A Problem with a `field` is shown beside the field that it is about.
 * @type {(form: HTMLElement, error: HTMLElement, work: () => unknown) => void} */
export function onSubmit(form, error, work) {
  const begin = () => {
    forgetErrors(form);
    return work();
  };
  /** @type {(problem: unknown) => void} */
  const failed = (problem) => {
    const named = problem instanceof Problem ? problem.field : undefined;
    const first = form.querySelector("input:not([readonly]):not([type=checkbox]), textarea");
    const field = named ?? /** @type {HTMLElement | null} */ (first);
    const place = named && document.getElementById(`${named.id}-error`);
    field?.setAttribute("aria-invalid", "true");
    tell(place ?? error, problem);
    field?.focus();
  };
  const button = /** @type {HTMLElement} */ (form.querySelector("[type=submit]"));
  const submit = once(button, begin, failed);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
}

/** Whether a box is ticked; if it is not, `error` says so, and the focus goes there.
 * @type {(box: HTMLInputElement, error: HTMLElement) => boolean} */
export function ticked(box, error) {
  tell(error, box.checked ? null : new Problem("unconfirmed", message("wallet-script.tick")));
  if (!box.checked) box.focus();
  return box.checked;
}

/** Judge the text of a field; a Problem is marked as being about it.
 * @template T
 * @param {HTMLInputElement | HTMLTextAreaElement} field
 * @param {(text: string) => T} judge */
export function judged(field, judge) {
  try {
    return judge(field.value.trim());
  } catch (problem) {
    throw problem instanceof Problem ? Object.assign(problem, { field }) : problem;
  }
}

/** Do `work`; a Problem that it throws is marked as being about `field`.
 * @template T
 * @param {HTMLElement} field
 * @param {() => T | Promise<T>} work */
export async function about(field, work) {
  try {
    return await work();
  } catch (problem) {
    throw problem instanceof Problem ? Object.assign(problem, { field }) : problem;
  }
}

/** Copy a text on a click: the button says so, and where the browser does not let us, `live` says what to do.
 * @type {(button: HTMLElement, text: () => string, live: HTMLElement) => void} */
export function onCopy(button, text, live) {
  const words = button.textContent;
  button.setAttribute("aria-live", "polite");
  onClick(
    button,
    async () => {
      await navigator.clipboard.writeText(text());
      write(live, "");
      write(button, message("script.copied"));
      setTimeout(() => write(button, words), 1_500);
    },
    () => write(live, message("wallet-script.copy-by-hand")),
  );
}

/** Hand a text to the person as a file.
 * @type {(name: string, text: string, type?: string) => void} */
export function download(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A moment, as the language of the page writes it.
 * @type {(milliseconds: number) => HTMLTimeElement} */
export function moment(milliseconds) {
  const dateTime = new Date(milliseconds).toISOString();
  return element("time", { dateTime, textContent: localTime(milliseconds) });
}
