/*
 * The API reference: Swagger UI for the node's OpenAPI document.
 *
 * The page is in a sandbox (svcd/pages/routes.py), so what it sends comes from another origin. "Try it out" is therefore
 * only where pages of other origins may ask: under /rpc, and without a token.
 */

/** @typedef {{ get(name: string): string }} Operation */
/** @typedef {{ filter(keep: (each: Operation) => boolean): Operations }} Operations */
/** @typedef {{ get(name: string): Operations, set(name: string, value: Operations): Group }} Group */
/** @typedef {{ map(change: (each: Group) => Group): Groups }} Groups */
/** @typedef {{ getIn(path: string[]): { size: number } | undefined }} Described */

const METHODS = ["get", "post"];

/**
 * Leaves out HEAD and OPTIONS, of which each path has the same.
 *
 * @param {(...more: unknown[]) => Groups} original
 */
const shown = (original) => (/** @type {unknown} */ _state, /** @type {unknown[]} */ ...more) =>
  original(...more).map((group) =>
    group.set("operations", group.get("operations").filter((each) => METHODS.includes(each.get("method")))),
  );

const triable = () => (/** @type {Described} */ state, /** @type {string} */ path, /** @type {string} */ method) =>
  path.startsWith("/rpc/") && !state.getIn(["json", "paths", path, method, "security"])?.size;

const dark = matchMedia("(prefers-color-scheme: dark)");

function follow() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  url: "/rpc/openapi.json",
  domNode: document.getElementById("reference"),
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
  supportedSubmitMethods: METHODS,
  plugins: [{ statePlugins: { spec: { wrapSelectors: { taggedOperations: shown, allowTryItOutFor: triable } } } }],
});
