// Says at once that a button was pressed, and sends no form twice.
addEventListener("submit", (event) => {
  if (event.target.querySelector("[aria-busy]")) event.preventDefault();
  event.submitter?.setAttribute("aria-busy", "true");
});
addEventListener("click", (event) => {
  // With one of these keys it opens elsewhere, and this page stays.
  const { ctrlKey, metaKey, shiftKey, altKey } = event;
  if (!(ctrlKey || metaKey || shiftKey || altKey)) event.target.closest("a.button")?.setAttribute("aria-busy", "true");
});
addEventListener("pageshow", () => document.querySelectorAll("[aria-busy]").forEach((each) => each.removeAttribute("aria-busy")));

// Keeps what a page shows up to date while somebody looks at it.
setInterval(async () => {
  if (document.hidden) return;
  const response = await fetch(location.href).catch(() => null);
  if (!response?.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("[data-live]");
  const shown = document.querySelector("[data-live]");
  if (!fresh || !shown || shown.querySelector("[aria-busy]")) return;
  // What somebody has unfolded stays so.
  const unfolded = shown.querySelectorAll("details");
  fresh.querySelectorAll("details").forEach((each, at) => (each.open = unfolded[at]?.open ?? false));
  if (fresh.innerHTML !== shown.innerHTML) shown.replaceWith(fresh);
}, 2000);
