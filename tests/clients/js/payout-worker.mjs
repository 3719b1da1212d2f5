// A worker of a shop: pays the same payouts as the others, in an order of its own, until it is killed.

import { FileJournal } from "../../../clients/javascript/src/file-journal.js";
import { Client, DEVNET, Key, Payouts, SvcPayError } from "../../../clients/javascript/src/index.js";

const [url, journal, seed, recipient, count, task] = process.argv.slice(2);
const key = await Key.fromSeed(new Uint8Array(Buffer.from(seed, "hex")));
const payouts = new Payouts(new Client(url), new FileJournal(journal), key, DEVNET, { confirmations: 3 });
if (task === "advance") {
  console.log((await payouts.advance()).length);
} else {
  const places = Array.from({ length: Number(count) }, (_, place) => [Math.random(), place]).sort();
  for (const [, place] of places) {
    console.log(`pay ${place}`);
    const [amount, id] = [10n ** 8n + BigInt(place), `payout-${place}`];
    await payouts.pay(id, { recipient, amount, reference: id }).catch((error) => {
      if (!(error instanceof SvcPayError)) throw error;
      console.log(`error: ${error.message}`);
    });
  }
  console.log("end");
}
