// What is said of a point that is pointed at.
import { html } from "../page/dom.js";
import { digits } from "../page/numbers.js";

/** A value as its format in the hover text asks: %{y:.1f}, %{percentRoot:.1%}; others with three digits.
 * @param {unknown} value @param {string} [format] */
const written = (value, format = "") => {
  if (typeof value !== "number") return String(value ?? "");
  const [, places, kind] = /^\.(\d)([f%])$/.exec(format) ?? [];
  if (!kind) return digits(value);
  return kind === "%" ? `${(100 * value).toFixed(Number(places))}%` : value.toFixed(Number(places));
};

/** @param {Trace} trace @param {number} at */
export const hover = (trace, at) => {
  /** @type {Record<string, any>} */
  const columns = { ...trace };
  const text = trace.hovertemplate
    .replace(/<extra>.*/, "")
    .replace(/%\{(\w+)(?::([^}]*))?\}/g, (_, name, format) => written(columns[name]?.[at] ?? "", format))
    .replace(/<br>/g, " · ");
  return /fullData\.name/.test(trace.hovertemplate) ? `${text} · ${trace.name}` : text;
};

/** A box beside the pointer; without a text it is hidden. @param {HTMLElement} holder */
export const tipOf = (holder) => {
  const box = html("div", { className: "tl-tip", hidden: true });
  holder.append(box);
  return (/** @type {string} */ text, /** @type {MouseEvent} */ event) => {
    box.hidden = !text;
    if (!text) return;
    const place = holder.getBoundingClientRect();
    box.textContent = text;
    box.style.left = `${Math.max(0, Math.min(event.clientX - place.left + 12, place.width - box.offsetWidth - 4))}px`;
    box.style.top = `${event.clientY - place.top + 14}px`;
  };
};
