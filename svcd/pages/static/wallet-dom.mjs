// What all views of the wallet do with the page. Text goes in as text: nothing here makes HTML out of strings.

import { formatAmount } from "./amounts.mjs";
import { digitNodes } from "./digits.mjs";
import { Problem } from "./problem.mjs";
import { localTime, message } from "./texts.mjs";
import { visible } from "./visible.mjs";

export const byId = (id) => document.getElementById(id);

/** A new element with properties and children. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

/** Write a text, unless it stands there already: screen readers would say it again. */
export function write(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

/** Write base units as coins with their unit. */
export function writeAmount(where, units, sign = "") {
  const text = `${sign}${formatAmount(units)}`;
  if (where.dataset.shown === text) return;
  where.dataset.shown = text;
  where.classList.toggle("long", where.classList.contains("big") && text.length > 12);
  where.replaceChildren(...digitNodes(text), " ", element("span", { className: "unit", textContent: "SVC" }));
}

/** Show a Problem in an element, or nothing for null. What is no Problem is said to be a fault of this page.
 *
 * A node's own sentence may stand in it, so nothing of it is hidden. */
export function tell(where, problem) {
  const known = problem === null || problem instanceof Problem;
  if (!known) console.error(problem);
  const failed = { code: "internal", message: message("wallet-script.page-failed", { problem: String(problem) }) };
  const { code = "", message: sentence = "" } = known ? (problem ?? {}) : failed;
  if (code) where.dataset.error = code;
  else delete where.dataset.error;
  write(where, visible(sentence));
  where.hidden = sentence === "";
}

/** Show one view and move the focus to its heading. */
export function show(view) {
  const { body } = document;
  const before = body.dataset.view;
  body.dataset.view = view;
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.dataset.view !== view;
  const heading = document.querySelector(`main > section[data-view="${view}"] h1`);
  document.title = `${heading.textContent} · SVC`;
  if (before !== "loading" && before !== view) {
    window.scrollTo(0, 0);
    heading.focus({ preventScroll: true });
  }
}

/** Remember what stands below `roots`; gives what brings it back. The elements stay, and with them who listens. */
export function remembered(roots) {
  const below = roots.flatMap((root) => [...root.querySelectorAll("*")]);
  const attributesOf = (place) => [...place.attributes].map(({ name, value }) => [name, value]);
  const before = below.map((place) => [place, attributesOf(place), [...place.childNodes]]);
  return () => {
    for (const [place, attributes, children] of before) {
      for (const name of place.getAttributeNames()) place.removeAttribute(name);
      for (const [name, value] of attributes) place.setAttribute(name, value);
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
 * A button with `data-busy` shows these words meanwhile. */
function once(button, work, failed) {
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

/** Do `work` on a click, and not again while it is under way; `failed` is told what it throws. */
export function onClick(button, work, failed = console.error) {
  const click = once(button, work, failed);
  button.addEventListener("click", () => button.getAttribute("aria-disabled") === "true" || click());
}

/** Do `work` when a form is sent, and not again while it is under way; what it throws stands in `error`.
 *
 * A Problem with a `field` stands there, beside the field that it is about. */
export function onSubmit(form, error, work) {
  const begin = () => {
    for (const place of form.querySelectorAll("[data-error]")) tell(place, null);
    for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
    return work();
  };
  const failed = (problem) => {
    const field = problem.field ?? form.querySelector("input:not([readonly]):not([type=checkbox]), textarea");
    const place = problem.field ? byId(`${problem.field.id}-error`) : error;
    field?.setAttribute("aria-invalid", "true");
    tell(place ?? error, problem);
    field?.focus();
  };
  const submit = once(form.querySelector("[type=submit]"), begin, failed);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
}

/** Whether a box is ticked; if it is not, `error` says so, and the focus goes there. */
export function ticked(box, error) {
  tell(error, box.checked ? null : new Problem("unconfirmed", message("wallet-script.tick")));
  if (!box.checked) box.focus();
  return box.checked;
}

/** Judge the text of a field; a Problem is marked as being about it. */
export function judged(field, judge) {
  try {
    return judge(field.value.trim());
  } catch (problem) {
    throw Object.assign(problem, { field });
  }
}

/** Copy a text on a click: the button says so, and where the browser does not let us, `live` says what to do. */
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

/** Hand a text to the person as a file. */
export function download(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A moment, as the language of the page writes it. */
export function moment(milliseconds) {
  const dateTime = new Date(milliseconds).toISOString();
  return element("time", { dateTime, textContent: localTime(milliseconds) });
}
