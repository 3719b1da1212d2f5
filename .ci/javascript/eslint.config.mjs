// The scripts of the pages: the rules that eslint recommends, in a browser.

import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    languageOptions: { sourceType: "module", globals: { ...globals.browser, BarcodeDetector: "readonly", SwaggerUIBundle: "readonly" } },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: { "no-unused-vars": ["error", { varsIgnorePattern: "^_$", argsIgnorePattern: "^_$" }] },
  },
];
