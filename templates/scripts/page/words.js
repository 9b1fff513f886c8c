// The words of kinds, parts of time and causes, as the page carries them from vocabulary.py.

/** @type {Vocabulary} */
const EMPTY = { kinds: {}, parts: {}, causes: {}, patterns: {}, texts: {}, viewer: {}, between: "", several: "" };
const source = typeof document === "undefined" ? null : document.getElementById("vocabulary");

/** @type {Vocabulary} */
export const WORDS = source ? JSON.parse(source.textContent) : EMPTY;
