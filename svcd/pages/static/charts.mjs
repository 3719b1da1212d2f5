// Reads a chart block by block: with the pointer, and with the arrow keys. Without it browsers show tooltips.

const PAGE = 10;

/** The index that a key leads to from `at`, of `count` values; null for a key that leads nowhere.
 * @type {(key: string, at: number, count: number) => number | null} */
export function next(key, at, count) {
  /** @type {Record<string, number>} */
  const places = {
    ArrowLeft: at - 1,
    ArrowDown: at - 1,
    ArrowRight: at + 1,
    ArrowUp: at + 1,
    PageDown: at - PAGE,
    PageUp: at + PAGE,
    Home: 0,
    End: count - 1,
  };
  return Object.hasOwn(places, key) ? Math.min(Math.max(places[key], 0), count - 1) : null;
}

/** Make a chart readable, if it is whole.
 * @type {(area: HTMLElement) => void} */
function readable(area) {
  const caption = area.closest("figure")?.querySelector("figcaption");
  if (!caption) return;
  const note = caption.textContent;
  const spots = [...area.querySelectorAll(".spot")];
  const readings = spots.map((spot) => spot.querySelector("title")?.textContent ?? "");
  let at = spots.length - 1;

  /** @type {(index: number) => void} */
  const show = (index) => {
    spots[at].classList.remove("on");
    at = index;
    spots[at].classList.add("on");
    caption.textContent = readings[at];
    area.setAttribute("aria-valuenow", String(at));
    area.setAttribute("aria-valuetext", readings[at]);
  };
  const leave = () => {
    if (area === document.activeElement) return;
    spots[at].classList.remove("on");
    caption.textContent = note;
  };

  // The caption says the value; a tooltip would cover the chart.
  for (const spot of spots) spot.querySelector("title")?.remove();
  const attributes = {
    tabindex: "0",
    role: "slider",
    "aria-label": area.dataset.chart ?? "",
    "aria-valuemin": "0",
    "aria-valuemax": String(at),
    "aria-valuenow": String(at),
    "aria-valuetext": readings[at],
  };
  for (const [name, value] of Object.entries(attributes)) area.setAttribute(name, value);
  area.addEventListener("pointermove", ({ target }) => {
    const index = target instanceof Element ? spots.indexOf(target) : -1;
    if (index >= 0) show(index);
  });
  area.addEventListener("pointerleave", leave);
  area.addEventListener("focus", () => show(at));
  area.addEventListener("blur", () => setTimeout(leave));
  area.addEventListener("keydown", (event) => {
    const index = next(event.key, at, spots.length);
    if (index === null) return;
    event.preventDefault();
    show(index);
  });
}

/** @type {NodeListOf<HTMLElement> | undefined} */
const areas = globalThis.document?.querySelectorAll("[data-chart]");
for (const area of areas ?? []) readable(area);
