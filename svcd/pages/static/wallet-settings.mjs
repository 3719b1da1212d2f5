// The settings: keyfile, payment links, removal.

import { message } from "./texts.mjs";
import { about, byId, onClick, onSubmit, show, tell, ticked, write } from "./wallet-dom.mjs";
import { reseal } from "./keyfile.mjs";
import { must } from "./problem.mjs";
import { downloadKeyfile, tellStorage } from "./wallet-open.mjs";
import { checkPassword, random } from "./wallet-passwords.mjs";

/** @import { Wallet } from "./wallet.mjs" */

/** @type {(app: Wallet) => void} */
export function wireSettings(app) {
  onClick(byId("settings-keyfile"), () => downloadKeyfile(app, byId("settings-keyfile-live")));
  onSubmit(byId("change-form"), byId("change-error"), () => changePassword(app));
  onClick(byId("register-protocol"), () => registerProtocol(byId("protocol-live")));
  onClick(
    byId("remove"),
    async () => {
      if (ticked(byId("remove-confirm", HTMLInputElement), byId("remove-error"))) await app.remove();
    },
    (problem) => tell(byId("remove-error"), problem),
  );
}

export function enterSettings() {
  byId("remove-confirm", HTMLInputElement).checked = false;
  tell(byId("remove-error"), null);
  byId("change-form", HTMLFormElement).reset();
  tell(byId("change-error"), null);
  write(byId("change-live"), "");
  write(byId("protocol-live"), "");
  write(byId("settings-keyfile-live"), "");
  tellStorage(byId("settings-storage"), navigator.storage?.persisted?.());
  show("settings");
}

/** @type {(app: Wallet) => Promise<void>} */
async function changePassword(app) {
  const [old, password, again] = ["change-old", "change-new", "change-again"].map((id) => byId(id, HTMLInputElement));
  const sentence = message("wallet-script.new-passwords-differ");
  await about(password, () => checkPassword(password.value));
  await about(again, () => must(password.value === again.value, "password-mismatch", sentence));
  const keyfile = await about(old, () => reseal(app.keyfile, old.value, password.value, random));
  await app.replace(keyfile);
  byId("change-form", HTMLFormElement).reset();
  write(byId("change-live"), message("wallet-script.password-changed"));
}

/** @type {(live: HTMLElement) => void} */
function registerProtocol(live) {
  try {
    navigator.registerProtocolHandler("web+svc", `${location.origin}/wallet/#pay=%s`);
    write(live, message("wallet-script.links-asked"));
  } catch {
    write(live, message("wallet-script.links-impossible"));
  }
}
