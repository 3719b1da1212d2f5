// The limits of an answer of a node, or of a proxy in front of it, below all calls of the client and of the pages.

import { InvalidAnswer } from "./errors.mjs";
import { formFault } from "./json-form.mjs";

/** @import { Fields } from "./strict-json.mjs" */

/** The greatest answer in bytes. */
const MAX_ANSWER = 4 * 1024 * 1024;
/** The status where an answer would need blocks that the node has deleted. */
export const PRUNED = 410;
/** Of a list that comes in pages: how many, and their characters together. */
const MAX_PAGES = 1000;
const MAX_LIST = 64 * 1024 * 1024;

const PLAIN = { "accept-encoding": "identity" };
/** Whether a program decides about compression here; in browsers they do, and the header is not even there. */
const decides = new Request("http://localhost", { headers: PLAIN }).headers.has("accept-encoding");

/** What `fetch` is given for a question, until `signal` ends it: no cache, no redirect, and credentials only where the
 * browser has asked for them to show the page.
 * @type {(signal: AbortSignal, headers?: Record<string, string>, credentials?: RequestCredentials) => RequestInit} */
export const question = (signal, headers = {}, credentials = "omit") => ({
  cache: "no-store",
  credentials,
  redirect: "manual",
  headers: decides ? { ...PLAIN, ...headers } : headers,
  signal,
});

/** The text of an answer, of which at most so many bytes are read; rejects with InvalidAnswer if it is not plain.
 * @type {(response: Response, most?: number) => Promise<string>} */
export async function textOf({ status, type, headers, body }, most = MAX_ANSWER) {
  /** @type {ReadableStreamDefaultReader<Uint8Array> | undefined} */
  const reader = body?.getReader();
  /** @type {(truth: boolean, sentence: string) => void} */
  const must = (truth, sentence) => {
    if (truth) return;
    reader?.cancel().catch(() => {});
    throw new InvalidAnswer(`the answer ${sentence}`);
  };
  // A browser does not tell the status of a redirect.
  const stays = type !== "opaqueredirect" && !(status >= 300 && status < 400);
  must(stays, "is a redirect, which no call follows: correct the URL");
  const plain = !decides || (headers.get("content-encoding") ?? "identity") === "identity";
  must(plain, "is compressed, and plain was asked for; it may be of a proxy");
  // A byte order mark stays a character, which no JSON begins with.
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** @type {(bytes?: Uint8Array) => string} */
  const decoded = (bytes) => {
    try {
      return decoder.decode(bytes, { stream: bytes !== undefined });
    } catch {
      must(false, "is not UTF-8");
      return "";
    }
  };
  let [text, size] = ["", 0];
  for (let part; !(part = await reader?.read())?.done && part; ) {
    size += part.value.length;
    must(size <= most, `has more than ${most} bytes`);
    text += decoded(part.value);
  }
  return text + decoded();
}

/** The object of a JSON text that every program reads in the same way; throws InvalidAnswer, in which `where` is the
 * text, and `other` what is wrong with a text that is not JSON.
 * @type {(text: string, where?: string, other?: string) => Fields} */
export function objectIn(text, where = "the answer", other = `${where} is not JSON`) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidAnswer(other);
  }
  const fault = formFault(text);
  if (fault !== null) throw new InvalidAnswer(`${where} is not one of a node: ${fault}`);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new InvalidAnswer(`${where} must be an object`);
  return value;
}

/** What checks where the next page of a list begins: `next`, and the characters of the page before it. Throws
 * InvalidAnswer if that was there before, or if there are too many.
 * @type {() => (next: string, characters: number) => string} */
export function pages() {
  const seen = new Set();
  let left = MAX_LIST;
  return (next, characters) => {
    left -= characters;
    const found = seen.has(next) ? "begins again" : `has more than ${MAX_PAGES} pages or ${MAX_LIST} characters`;
    if (seen.has(next) || seen.size === MAX_PAGES || left < 0) throw new InvalidAnswer(`the list of the node ${found}`);
    seen.add(next);
    return next;
  };
}
