// Gives the modules the English texts, as a page does.

import { readFileSync } from "node:fs";

import { useTexts } from "../../../svcd/pages/static/texts.mjs";

const FILE = new URL("../../../svcd/pages/texts/en.json", import.meta.url);
const sections = Object.entries(JSON.parse(readFileSync(FILE, "utf8")));
const texts = sections.flatMap(([section, entries]) =>
  Object.entries(entries).map(([name, text]) => [`${section}.${name}`, text]),
);

useTexts(Object.fromEntries(texts), "en");
