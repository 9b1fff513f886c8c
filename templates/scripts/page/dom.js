// Elements, found and made.

const NS = "http://www.w3.org/2000/svg";

/** An element that the page is known to have. @param {string} id @returns {HTMLElement} */
export const byId = (id) => {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
};

/** The first element within that matches, which is known to be there.
 * @template {HTMLElement} [E=HTMLElement] @param {ParentNode} within @param {string} selector @returns {E} */
export const one = (within, selector) => {
  const found = /** @type {E | null} */ (within.querySelector(selector));
  if (!found) throw new Error(`the page has no ${selector}`);
  return found;
};

/** @template {keyof HTMLElementTagNameMap} T @param {T} tag @param {Partial<Record<string, string | number | boolean>>} [properties] @param {(Node | string)[]} children */
export const html = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

/** @param {string} name @param {Record<string, string | number>} [attributes] @param {(Node | string)[]} children */
export const svg = (name, attributes = {}, ...children) => {
  const made = /** @type {SVGElement} */ (document.createElementNS(NS, name));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
};

/** Enter and the space bar do what a click does. @param {Element} element @param {() => void} act */
export const onEnter = (element, act) =>
  element.addEventListener("keydown", (event) => {
    const { key } = /** @type {KeyboardEvent} */ (event);
    if (key !== "Enter" && key !== " ") return;
    event.preventDefault();
    act();
  });

/** A menu. @param {[text: string, value: string][]} options */
export const menu = (options) => html("select", {}, ...options.map(([text, value]) => new Option(text, value)));
