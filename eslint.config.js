import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  { files: ["templates/scripts/**/*.js"], languageOptions: { globals: globals.browser } },
  { files: ["tests/**/*.{js,mjs}"], languageOptions: { globals: globals.node } },
  {
    rules: {
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "no-implicit-coercion": "error",
      "one-var": ["error", "never"],
      "no-empty": ["error", { allowEmptyCatch: true }],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-restricted-properties": ["error", { property: "innerHTML", message: "Names of traces are text." }],
    },
  },
];
