// The settings: keyfile, payment links, removal.

import { byId, onClick, show, tell, ticked, write } from "./wallet-dom.mjs";
import { downloadKeyfile } from "./wallet-open.mjs";

export function wireSettings(app) {
  onClick(byId("settings-keyfile"), () => downloadKeyfile(app, byId("settings-keyfile-live")));
  onClick(byId("register-protocol"), () => registerProtocol(byId("protocol-live")));
  onClick(
    byId("remove"),
    async () => {
      if (ticked(byId("remove-confirm"), byId("remove-error"))) await app.remove();
    },
    (problem) => tell(byId("remove-error"), problem),
  );
}

export function enterSettings() {
  byId("remove-confirm").checked = false;
  tell(byId("remove-error"), null);
  write(byId("protocol-live"), "");
  write(byId("settings-keyfile-live"), "");
  show("settings");
}

function registerProtocol(live) {
  try {
    navigator.registerProtocolHandler("web+svc", `${location.origin}/wallet/?pay=%s`);
    write(live, "Asked. Where the browser shows a question, say yes to it.");
  } catch {
    write(live, "This browser opens no payment links in pages; paste the link's address by hand instead.");
  }
}
