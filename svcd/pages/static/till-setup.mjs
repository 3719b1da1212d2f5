// The view in which a till is set up.

import { checkAddress } from "./address.mjs";
import { typedAmount } from "./amounts.mjs";
import { coins } from "./digits.mjs";
import { judgedLink } from "./link-policy.mjs";
import { isDepth } from "./orders.mjs";
import { must } from "./problem.mjs";
import { message } from "./texts.mjs";
import { siteData } from "./site-data.mjs";
import { newOrder, pricesIn, referenceOf, slugOf, tillOf, uriOf } from "./till-orders.mjs";
import { parseUri } from "./uri.mjs";
import { byId, judged, onSubmit, show, tell, write } from "./wallet-dom.mjs";

/** @import { Network } from "./networks.mjs" */
/** @import { Settings } from "./till-store.mjs" */
/** @import { Till } from "./till.mjs" */

const SEEN = "seen";
const BLOCKS = "blocks";

/** @type {(id: string) => HTMLInputElement} */
const field = (id) => byId(id, HTMLInputElement);

/** Throw what is wrong with a name: it is the label of every payment link, and a part of every reference.
 * @type {(name: string, recipient: string, network: Network) => void} */
function checkName(name, recipient, network) {
  const till = tillOf(network.genesisHash, recipient, name);
  const order = newOrder(referenceOf(slugOf(name), "20261130", "aaaaaaaa", 1n), till, 1, [], 0);
  parseUri(uriOf(order, recipient, name), network);
}

/** @type {() => number} */
function ruleIn() {
  if (field("setup-seen").checked) return 0;
  return judged(field("setup-count"), (text) => {
    const count = Number(text);
    must(/^[0-9]+$/.test(text) && isDepth(count), "confirmations", message("till-script.count"));
    return count;
  });
}

/** What is typed; throws what is wrong with it.
 * @type {(network: Network) => Settings} */
function settingsIn(network) {
  judged(field("setup-name"), (text) => must(slugOf(text) !== "", "name", message("till-script.name")));
  const recipient = judged(field("setup-recipient"), (text) => {
    checkAddress(text, network);
    const policy = siteData();
    judgedLink({ recipient: text, label: null, returnUrl: null }, policy);
    return text;
  });
  const name = judged(field("setup-name"), (text) => {
    checkName(text, recipient, network);
    return text;
  });
  const prices = byId("setup-prices", HTMLTextAreaElement);
  judged(prices, (text) => pricesIn(text, typedAmount));
  const turn = Number(byId("setup-turn", HTMLSelectElement).value);
  return { name, recipient, prices: prices.value, rule: ruleIn(), turn, sound: field("setup-sound").checked };
}

function showRule() {
  const seen = field("setup-seen").checked;
  byId("setup-risk").hidden = !seen;
  byId("setup-count-field").hidden = seen;
  write(byId("setup-prefix"), `${slugOf(field("setup-name").value) || "…"}-`);
}

/** @type {(till: Till) => void} */
export function wireSetup(till) {
  byId("setup-form").addEventListener("input", showRule);
  onSubmit(byId("setup-form"), byId("setup-error"), async () => {
    await till.setUp(settingsIn(till.network));
    if (location.hash === "#sale") till.view();
    else location.hash = "#sale";
  });
}

/** @type {(till: Till) => void} */
export function enterSetup({ settings, network }) {
  const { name, recipient, prices, rule, turn, sound } = settings ?? {
    ...{ name: "", recipient: "", prices: "", rule: 1, turn: 0, sound: true },
  };
  write(byId("setup-least"), coins(network.rules.accountMinimum));
  field("setup-name").value = name;
  field("setup-recipient").value = recipient;
  byId("setup-prices", HTMLTextAreaElement).value = prices;
  field(`setup-${rule === 0 ? SEEN : BLOCKS}`).checked = true;
  field("setup-count").value = `${Math.max(rule, 1)}`;
  byId("setup-turn", HTMLSelectElement).value = `${turn}`;
  field("setup-sound").checked = sound;
  tell(byId("setup-error"), null);
  showRule();
  show("setup");
}
