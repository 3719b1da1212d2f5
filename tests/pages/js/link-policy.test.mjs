// Which payment links the wallet page shows as links of its site.

import "./english.mjs";
import assert from "node:assert/strict";
import { test } from "node:test";
import { judgedLink } from "../../../svcd/pages/static/link-policy.mjs";

const link = { recipient: "svc1shop", label: "Tea", returnUrl: "https://shop.example:8443/7", until: 5 };
const any = { recipients: [], returnHosts: [], only: false };
const listed = { recipients: ["svc1shop"], returnHosts: ["shop.example:8443"], only: false };

test("links that are listed, or that nothing restricts, keep what they say", () => {
  for (const policy of [any, listed, { ...listed, only: true }]) {
    assert.deepEqual(judgedLink(link, policy), { ...link, listed: true });
    assert.deepEqual(judgedLink({ ...link, returnUrl: null }, policy), { ...link, returnUrl: null, listed: true });
  }
});

test("other links lose their label and their way back, or are refused", () => {
  for (const forged of [
    { ...link, recipient: "svc1mallory" },
    { ...link, returnUrl: "https://shop.example/7" },
    { ...link, returnUrl: "https://shop.example.evil/7" },
  ]) {
    assert.deepEqual(judgedLink(forged, listed), { ...forged, label: null, returnUrl: null, listed: false });
    assert.throws(() => judgedLink(forged, { ...listed, only: true }), { code: "unlisted" });
  }
});
