// Shows times as the reader's language and place write them; without this script they are in UTC.

import { localTime } from "./texts.mjs";

/** @type {NodeListOf<HTMLTimeElement> | undefined} */
const times = globalThis.document?.querySelectorAll("time[data-local]");
for (const time of times ?? []) {
  time.title = time.textContent;
  time.textContent = localTime(Date.parse(time.dateTime));
}
