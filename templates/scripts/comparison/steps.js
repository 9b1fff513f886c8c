// Steps of several runs below one another: all show the same stretch, which buttons, keys, wheel and drag change.
import { one } from "../page/dom.js";
import { timeText } from "../page/numbers.js";
import { limited, moved, zoomed } from "./stretch.js";

/** Width of each picture in its own units. */
const WHOLE = 100_000;

/** @typedef {import("./stretch.js").Stretch} Stretch */

/** @type {Record<string, (stretch: Stretch) => Stretch>} */
const DOES = {
  whole: () => [0, WHOLE],
  in: (stretch) => zoomed(stretch, 0.5),
  out: (stretch) => zoomed(stretch, 2),
  left: (stretch) => moved(stretch, -0.2),
  right: (stretch) => moved(stretch, 0.2),
};
/** @type {Record<string, string>} */
const KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "whole", Home: "whole" };

export const startSteps = () => {
  const box = document.getElementById("steps");
  if (!box) return;
  const lanes = one(box, ".lanes");
  const pictures = [...lanes.querySelectorAll("svg")];
  const hatch = one(box, "#hatch-steps");
  const ns = Number(lanes.dataset.longest) / WHOLE;
  /** @type {Stretch} */
  let shown = [0, WHOLE];
  const show = (/** @type {Stretch} */ stretch) => {
    shown = limited(stretch, WHOLE);
    const [from, to] = shown;
    for (const svg of pictures) svg.setAttribute("viewBox", `${from} 0 ${to - from} ${svg.viewBox.baseVal.height}`);
    // The pictures are stretched, the hatching of waits is not.
    const stretched = (to - from) / (pictures[0].clientWidth || 1000);
    hatch.setAttribute("patternTransform", `scale(${stretched} 1) rotate(45)`);
    const isWhole = to - from >= WHOLE;
    one(box, "output").textContent = isWhole ? "" : `${timeText(from * ns)} to ${timeText(to * ns)} of the step`;
  };
  /** The place of a pointer in the pictures' units. @param {MouseEvent} event */
  const placeOf = (event) => {
    const { left, width } = pictures[0].getBoundingClientRect();
    return shown[0] + ((event.clientX - left) / width) * (shown[1] - shown[0]);
  };
  addEventListener("resize", () => show(shown));
  show(shown);
  const tools = one(box, ".step-tools");
  tools.hidden = false;
  tools.addEventListener("click", ({ target }) => {
    const does = target instanceof HTMLElement && DOES[target.dataset.do ?? ""];
    if (does) show(does(shown));
  });
  lanes.addEventListener("keydown", (event) => {
    const does = !event.ctrlKey && !event.metaKey && DOES[KEYS[event.key]];
    if (!does) return;
    event.preventDefault();
    show(does(shown));
  });
  /** @param {WheelEvent} event */
  const wheel = (event) => {
    if (!event.ctrlKey && document.activeElement !== lanes) return;
    event.preventDefault();
    show(zoomed(shown, Math.exp(event.deltaY * 0.0016), placeOf(event)));
  };
  lanes.addEventListener("wheel", wheel, { passive: false });
  /** @type {number | null} */
  let from = null;
  lanes.addEventListener("pointerdown", (event) => {
    from = event.target instanceof SVGElement && event.button === 0 ? placeOf(event) : null;
  });
  lanes.addEventListener("pointerup", (event) => {
    const to = placeOf(event);
    const isDrag = from !== null && Math.abs(to - from) > 0.005 * (shown[1] - shown[0]);
    if (isDrag && from !== null) show([Math.min(from, to), Math.max(from, to)]);
    from = null;
  });
};
