// The texts of this page in its language: the node has put those that scripts need into the page.

import { grouped } from "./digits.mjs";

/** @typedef {Record<string, string | { one: string, other: string }>} Texts */

const COUNT = "count";

/** @type {Texts} */
let texts = {};
let language = "en";
let forms = new Intl.PluralRules(language);

/** Use the texts `given` in the language `tag`.
 * @type {(given: Texts, tag: string) => void} */
export function useTexts(given, tag) {
  texts = given;
  language = tag;
  forms = new Intl.PluralRules(tag);
}

/** The text `key` with the values of its placeholders; numbers get their digits in groups.
 * @type {(key: string, parameters?: Record<string, string | number | bigint>) => string} */
export function message(key, parameters = {}) {
  const text = texts[key];
  if (text === undefined) throw new RangeError(`there is no text ${key}`);
  const one = typeof text === "object" && forms.select(Number(parameters[COUNT])) === "one";
  const chosen = typeof text === "object" ? (one ? text.one : text.other) : text;
  return chosen.replace(/\{([a-z]+)\}/g, (_, name) => {
    const value = parameters[name];
    if (value === undefined) throw new RangeError(`${key} needs ${name}`);
    return typeof value === "string" ? value : grouped(value);
  });
}

/** The locale of dates and times: the person's own if it has the language of the page, since it knows the country.
 * @type {() => string} */
export function locale() {
  const [wanted] = language.split("-");
  return globalThis.navigator?.languages?.find((each) => each.split("-")[0] === wanted) ?? language;
}

/** A time in Unix milliseconds, as this language and place write it.
 * @type {(time: number, dateStyle?: "medium" | "long") => string} */
export const localTime = (time, dateStyle = "medium") =>
  new Date(time).toLocaleString(locale(), { dateStyle, timeStyle: "short" });

/** What is left of a duration, rounded up: "Less than a minute left", "About 12 minutes left", "About 3 hours left"; of one
 * until a deadline rounded by Math.floor.
 * @type {(seconds: number, round?: (number: number) => number) => string} */
export function timeLeft(seconds, round = Math.ceil) {
  const minutes = round(Math.max(seconds, 0) / 60);
  if (minutes > 120) return message("script.hours-left", { count: round(minutes / 60) });
  return seconds < 60 ? message("script.under-a-minute-left") : message("script.minutes-left", { count: minutes });
}

const given = globalThis.document?.getElementById("texts");
if (given) useTexts(JSON.parse(given.textContent), document.documentElement.lang);
