// Prices in money: a shop's own rate of a coin turns a price into an amount, which is kept with the rate.
//
// Nodes know no prices. A rate that is zero, negative, not a number or too old is refused, and never replaced.

import { isLoopback, must } from "./chain.js";
import { InvalidAnswer, RateRefused } from "./errors.js";
import { question, textOf } from "./light/answers.mjs";
import { COIN, formatAmount, GREATEST } from "./light/units.mjs";
import { visible } from "./light/visible.mjs";

/** Seconds that a server of rates may take to answer. */
const TIMEOUT = 5;
const MAX_BYTES = 1 << 20;
/** By how many milliseconds the clock that dates a rate may be ahead. */
const MAX_AHEAD = 60_000;
const PLACES = 40;
const CURRENCY = /^[A-Z0-9]{2,10}$/;
const DECIMAL = new RegExp(`^(0|[1-9][0-9]{0,17})(?:\\.([0-9]{1,${PLACES}}))?$`);
const EXPONENTIAL = new RegExp(`^([0-9])(?:\\.([0-9]{1,${PLACES}}))?[eE]([+-]?[0-9]{1,2})$`);

// Numbers

/** The digits of a decimal above 0 in a string or an integer; null for everything else. */
function positive(value) {
  const digits = Number.isSafeInteger(value) ? String(value) : value;
  return typeof digits === "string" && DECIMAL.test(digits) && /[1-9]/.test(digits) ? digits : null;
}

/** A decimal in units of 10^-40. */
function unitsOf(digits) {
  const [, whole, rest = ""] = DECIMAL.exec(digits);
  return BigInt(whole + rest.padEnd(PLACES, "0"));
}

/** The digits of a number with an exponent, such as JavaScript writes below a millionth; null for everything else. */
function expanded(number) {
  const [, first, rest = "", exponent] = EXPONENTIAL.exec(number) ?? [];
  if (first === undefined) return null;
  const all = first + rest;
  const point = 1 + Number(exponent);
  if (point <= 0) return `0.${all.padStart(all.length - point, "0")}`;
  const whole = all.slice(0, point).padEnd(point, "0").replace(/^0+(?=.)/, "");
  return point < all.length ? `${whole}.${all.slice(point)}` : whole;
}

const told = (value) =>
  visible((typeof value === "object" ? JSON.stringify(value) : `"${String(value)}"`).slice(0, 64));

/** The digits of the price of a coin; throws RateRefused. */
function rateOf(value) {
  const digits = positive(value);
  const rounded = 'a number with a fraction is rounded: give it as a string, such as "0.48"';
  const advice = typeof value === "number" && value > 0 ? rounded : "give a number above 0 with a point, such as 0.48";
  if (digits === null) throw new RateRefused(`${told(value)} is not a rate; ${advice}`);
  return digits;
}

// Time

/** Why a rate may not be used at a time in milliseconds; null if it may. */
function fault({ currency, at, maxAge }, now) {
  if (maxAge !== null && now - at > maxAge * 1000)
    return `the rate of ${currency} is ${Math.ceil((now - at) / 1000)} seconds old, and may be used for ${maxAge}`;
  if (at - now > MAX_AHEAD)
    return `the time of the rate of ${currency} is in the future; correct the clock of its source, or this one`;
  return null;
}

function checkTime(rate, now) {
  const timed = Number.isSafeInteger(rate.at) && (rate.maxAge === null || Number.isSafeInteger(rate.maxAge));
  const sentence = timed
    ? fault(rate, now)
    : `the time of the rate of ${rate.currency} must be an integer in Unix milliseconds`;
  if (sentence !== null) throw new RateRefused(sentence);
}

function checkedAge(maxAge) {
  must(Number.isSafeInteger(maxAge) && maxAge >= 1, "maxAge must be a whole number of seconds, at least 1");
  return maxAge;
}

/** Where a shop's rate of one currency comes from: made by `fixed`, `function` or `url`. */
export class RateSource {
  #read;
  #maxAge;
  #known = null;

  constructor(currency, read, maxAge) {
    const given = typeof currency === "string" && CURRENCY.test(currency);
    must(given, `${told(currency)} is not a currency; give a code such as EUR`);
    this.currency = currency;
    this.#read = read;
    this.#maxAge = maxAge;
  }

  /** The same rate at any time. */
  static fixed(currency, price) {
    const digits = rateOf(price);
    return new RateSource(currency, () => digits, null);
  }

  /** What `read` gives or promises: the price of a coin, or an array of it and its time in Unix milliseconds.
   *
   * It is called again when its last rate is older than `maxAge` seconds.
   */
  static function(currency, read, { maxAge } = {}) {
    return new RateSource(currency, read, checkedAge(maxAge));
  }

  /** The number at `path` in the JSON at `url`: names and places with dots between them, or an array of them.
   *
   * The server is asked again when its last rate is older than `maxAge` seconds. The URL must begin with https://, or
   * with http:// and a loopback address, and no redirect is followed.
   */
  static url(currency, url, path, { maxAge, fetch = globalThis.fetch } = {}) {
    checkUrl(url);
    const steps = (typeof path === "string" ? path.split(".") : [...path]).map(String);
    return new RateSource(currency, () => fetched((...given) => fetch(...given), url, steps), checkedAge(maxAge));
  }

  /** The rate; `now` is the Unix time in seconds.
   *
   * Rejects with RateRefused if there is none that may be used now, and with what a function throws.
   */
  async rate({ now = Date.now() / 1000 } = {}) {
    const moment = Math.floor(now * 1000);
    if (this.#known !== null && fault(this.#known, moment) === null) return this.#known;
    const read = await this.#read();
    const [price, at] = Array.isArray(read) && read.length === 2 ? read : [read, moment];
    const rate = Object.freeze({ currency: this.currency, price: rateOf(price), at, maxAge: this.#maxAge });
    checkTime(rate, moment);
    if (this.#maxAge !== null) this.#known = rate;
    return rate;
  }
}

/** The amount of an order for goods of a price, rounded up to 8 decimals of a coin; store all of it with the order.
 *
 * `now` is the Unix time in seconds. Throws RateRefused for a rate that may not be used, and InvalidInput for a price
 * that is not one, is in another currency, or is more than a payment can be.
 */
export function orderAmount(price, currency, rate, { now = Date.now() / 1000 } = {}) {
  must(currency === rate.currency, `the price is in ${currency} and the rate in ${rate.currency}`);
  const [coin, asked] = [rateOf(rate.price), positive(price)];
  checkTime(rate, Math.floor(now * 1000));
  must(asked !== null, `${told(price)} is not a price; give a decimal above 0 as a string, such as "12.50"`);
  const divisor = unitsOf(coin);
  const amount = (unitsOf(asked) * COIN + divisor - 1n) / divisor;
  const most = `${formatAmount(GREATEST)} coins, the most`;
  must(amount <= GREATEST, `at ${coin} ${currency} for a coin, ${asked} ${currency} is more than ${most}`);
  return { amount: String(amount), price: asked, currency, rate: coin, rateAt: String(rate.at) };
}

// URLs

/** Throws InvalidInput without repeating the URL, which may contain a key. */
function checkUrl(url) {
  must(typeof url === "string" && URL.canParse(url), "the URL of the rate is not valid");
  const { protocol, hostname, username, password } = new URL(url);
  const secure = protocol === "https:" || (protocol === "http:" && isLoopback(hostname));
  must(secure, "the URL of the rate must begin with https://, or with http:// and a loopback address");
  const open = username === "" && password === "";
  must(open, "the URL of the rate must have no user name and password; use a function that sends them");
}

/** The digits of the number at a path of the JSON at a URL; rejects with RateRefused. */
async function fetched(fetch, url, path) {
  const body = await downloaded(fetch, url);
  let value;
  try {
    value = JSON.parse(body);
  } catch {
    throw new RateRefused("the answer of the server of the rate is not JSON");
  }
  const where = JSON.stringify(path.join("."));
  for (const step of path) {
    const known = Array.isArray(value) ? /^(?:0|[1-9][0-9]{0,8})$/.test(step) : typeof value === "object";
    if (!known || value === null || !Object.hasOwn(value, step))
      throw new RateRefused(`the answer of the server of the rate has no ${JSON.stringify(step)} of ${where}`);
    value = value[step];
  }
  const text = typeof value === "number" ? String(value) : value;
  const digits = positive(typeof text === "string" ? (expanded(text) ?? text) : null);
  if (digits === null)
    throw new RateRefused(`${where} in the answer of the server of the rate is not a decimal above 0: ${told(value)}`);
  return digits;
}

/** The text of the answer, as no cache and no redirect has it; rejects with RateRefused. */
async function downloaded(fetch, url) {
  const given = question(AbortSignal.timeout(TIMEOUT * 1000), { accept: "application/json" });
  let answer, text;
  try {
    answer = await fetch(url, given);
    text = await textOf(answer, MAX_BYTES);
  } catch (error) {
    if (error instanceof InvalidAnswer) throw new RateRefused(`the server of the rate: ${error.message}`);
    throw new RateRefused(`the server of the rate does not answer: ${error.cause?.message ?? error.message}`);
  }
  if (answer.status !== 200) throw new RateRefused(`the server of the rate answers with status ${answer.status}`);
  return text;
}
