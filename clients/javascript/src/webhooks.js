// Verifies callbacks (docs/webhook-reference.md "Signatures", https://www.standardwebhooks.com) and reads their events.

import { checkOrder, formatCoins, MAINNET, must, networkFor } from "./chain.js";
import { bytesOfBase64 } from "./encodings.js";
import { InvalidAnswer, InvalidInput, InvalidSignature } from "./errors.js";
import { joined, utf8 } from "./light/bytes.mjs";
import { objectIn } from "./light/answers.mjs";
import { members, mismatchOf, payment } from "./members.js";

const TOLERANCE_SECONDS = 300;

/** The names of the events of a watch. */
export const EVENT_NAMES = Object.freeze([
  "payment.pending",
  "payment.confirming",
  "payment.confirmed",
  "payment.reorged",
  "payment.expired",
  "payment.dropped",
  "payment.mismatched",
  "node.alarm",
]);

/** Whether an event is of a watch; the others are `webhook.test`, and what this version does not know. */
export const isWatchEvent = (event) => EVENT_NAMES.includes(event.event);

/** Whether the payment of an event of a watch is that of exactly this order, on the network of the recipient.
 *
 * `network` is that one, and must be given unless it is mainnet or devnet.
 */
export function concerns(event, order, { network } = {}) {
  const { reference, recipient, amount } = checkOrder(order, network);
  const told = event.payment;
  const same = told.reference === reference && told.recipient === recipient && told.amount === amount;
  return same && event.genesisHash === networkFor(recipient, network).genesisHash;
}

/** Whether the shop may deliver the order now: the payment is confirmed, as deep as the order requires.
 *
 * Only the newest event of a watch counts: compare `epoch`, then `sequence`. `network` is that of `concerns`.
 */
export function settles(event, order, { network } = {}) {
  const { state, canonical, confirmations } = event.payment;
  const deep = state === "confirmed" && canonical && confirmations >= checkOrder(order, network).confirmations;
  return concerns(event, order, { network }) && deep;
}

/** What a person should look at: of an alarm its sentence, of a mismatch how to refund it; else null.
 *
 * `network` is that of `concerns`, which says what its coins are called.
 */
export function noticeOf({ alarm, mismatch }, { network = MAINNET } = {}) {
  if (alarm) return alarm.sentence;
  if (!mismatch) return null;
  const more = mismatch.more ? "; list the payments, for further ones are not reported" : "";
  const coins = formatCoins(mismatch.amount, network.unit);
  // A late payment is the right one, and the shop may have accepted it.
  const choice = mismatch.kind === "late" ? "unless you accept it, " : "";
  return `${mismatch.kind}: ${coins} from ${mismatch.sender}; ${choice}svc wallet refund ${mismatch.txid}${more}`;
}

/** The text of a body; a byte order mark stays, and is no JSON. */
function textIn(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new InvalidAnswer("the event must be UTF-8");
  }
}

/** Events that do not change the state of the payment: theirs is that of the last event that did. */
const UNCHANGED = ["payment.mismatched", "node.alarm"];

/** The event in a text; throws InvalidAnswer. */
export function parseEvent(text) {
  const event = members(objectIn(text, "the event"), "the event", {
    id: "text",
    event: "text",
    createdAt: "number",
    networkId: "count",
    chainId: "text",
    genesisHash: "text",
  });
  if (!isWatchEvent(event)) return event;
  members(event, "the event", {
    subscriptionId: "text",
    epoch: "count",
    sequence: "count",
    initial: "flag",
    previousState: "text",
    tip: "object",
    node: "object",
    mismatch: event.event === "payment.mismatched" ? "object" : "object?",
    alarm: event.event === "node.alarm" ? "object" : "object?",
    dropped: event.event === "payment.dropped" ? "object" : "object?",
  });
  payment(event.payment, "payment", { earlier: UNCHANGED.includes(event.event) });
  members(event.node, "node", { height: "number", hash: "text", synced: "flag" });
  members(event.tip, "tip", { height: "number", hash: "text" });
  if (event.mismatch) mismatchOf(event.mismatch, event.payment.recipient);
  if (event.dropped) members(event.dropped, "dropped", { reason: "text", txid: "hash?", replacedBy: "hash?" });
  if (event.alarm) members(event.alarm, "alarm", { kind: "text", sentence: "text" });
  return event;
}

// What nobody sees in a line, and the spaces that nobody can tell from the usual one; the node has the same rule.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/u;

/** The secret in the text of its file; a byte order mark at the beginning is no part of it. */
function secretIn(given) {
  const line = typeof given === "string" ? given.replace(/^\ufeff/, "").replace(/[\r\n]+$/, "") : "";
  const unseen = UNSEEN.exec(line);
  if (unseen !== null) {
    const code = unseen[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const place = `column ${[...line.slice(0, unseen.index)].length + 1}`;
    const advice = "nobody sees it: remove it, or type the secret again";
    throw new InvalidInput(`the signing secret must not have U+${code} in ${place}; ${advice}`);
  }
  const secret = line.replace(/^ +| +$/g, "");
  must(secret !== "", "the signing secret is empty");
  return secret;
}

function keyBytes(given) {
  const secret = secretIn(given);
  if (!secret.startsWith("whsec_")) return utf8(secret);
  const bytes = bytesOfBase64(secret.slice("whsec_".length));
  must(bytes !== null && bytes.length > 0, "a secret that begins with whsec_ continues in base64");
  return bytes;
}

/** The value of a header in `Headers`, or in an object such as `request.headers` of Node.js; "" if there is none. */
function header(headers, name) {
  if (typeof headers.get === "function") return headers.get(name) ?? "";
  const found = Object.keys(headers).find((each) => each.toLowerCase() === name);
  const value = found === undefined ? "" : headers[found];
  return typeof value === "string" ? value : "";
}

/** Verifies the callbacks of a node.
 *
 * `secrets` is the signing secret as the node's file has it, or as `whsec_…`; while it is being rotated, both.
 * Spaces around a secret, the newline of the file and a byte order mark at its beginning do not count; another
 * character that nobody sees is refused.
 */
export class Webhook {
  #keys;
  #tolerance;

  constructor(secrets, { tolerance = TOLERANCE_SECONDS } = {}) {
    const all = (Array.isArray(secrets) ? secrets : [secrets]).map(keyBytes);
    must(all.length > 0, "give at least one signing secret");
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    this.#keys = async () =>
      Promise.all(all.map((key) => crypto.subtle.importKey("raw", key, algorithm, false, ["verify"])));
    this.#tolerance = tolerance;
  }

  /** The event in a callback; `body` is the bytes as received, `now` the Unix time in seconds.
   *
   * Rejects with InvalidSignature (answer 401), or InvalidAnswer for a signed body that is not an event.
   */
  async verify(body, headers, { now = Date.now() / 1000 } = {}) {
    const bytes = body instanceof ArrayBuffer ? new Uint8Array(body) : body;
    const raw = bytes instanceof Uint8Array;
    must(raw, "give the raw body as bytes: text that was parsed or decoded cannot be verified");
    const [id, timestamp, given] = ["id", "timestamp", "signature"].map((name) => header(headers, `webhook-${name}`));
    const timed = /^[0-9]{1,15}$/.test(timestamp);
    if (!timed) throw new InvalidSignature("webhook-timestamp must be a Unix time in seconds");
    const near = Math.abs(now - Number(timestamp)) <= this.#tolerance;
    const late = `webhook-timestamp must be within ${this.#tolerance} s of this computer's clock`;
    if (!near) throw new InvalidSignature(late);
    const signed = joined(utf8(`${id}.${timestamp}.`), bytes);
    const signatures = given
      .split(" ")
      .filter((each) => each.startsWith("v1,"))
      .map((each) => bytesOfBase64(each.slice(3)));
    // WebCrypto compares in constant time; every pair is compared, so that the time does not tell which one failed.
    const pairs = (await this.#keys()).flatMap((key) =>
      signatures.filter(Boolean).map((signature) => [key, signature]),
    );
    const right = await Promise.all(
      pairs.map(([key, signature]) => crypto.subtle.verify("HMAC", key, signature, signed)),
    );
    const wrong = "webhook-signature is not of this body under the signing secret";
    if (!right.includes(true)) throw new InvalidSignature(wrong);
    const event = parseEvent(textIn(bytes));
    if (event.id !== id) throw new InvalidAnswer("webhook-id is not the id of the event");
    return event;
  }
}
