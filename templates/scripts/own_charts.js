"use strict";
// Charts that the page draws itself, as SVG: points, lines and icicles, from the dictionaries that plotly takes elsewhere.
(() => {
  const TA = (globalThis.TA ??= {});
  const NS = "http://www.w3.org/2000/svg";
  TA.svg = (name, attributes = {}, ...children) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const { svg } = TA;

  // A value as its format in the hover text asks: %{y:.1f}, %{percentRoot:.1%}; others with three digits.
  const written = (value, format) => {
    if (typeof value !== "number") return String(value ?? "");
    const fixed = /^\.(\d)([f%])$/.exec(format ?? "");
    if (fixed) return fixed[2] === "%" ? `${(100 * value).toFixed(fixed[1])} %` : value.toFixed(fixed[1]);
    return TA.digits(value);
  };
  const hover = (trace, at) => trace.hovertemplate.replace(/<extra>.*/, "").replace(/%\{(\w+)(?::([^}]*))?\}/g, (_, name, format) => written(trace[name]?.[at] ?? "", format)).replace(/<br>/g, " · ") + (/fullData\.name/.test(trace.hovertemplate) ? ` · ${trace.name}` : "");

  const tipOf = (holder) => {
    const box = document.createElement("div");
    box.className = "tl-tip"; box.hidden = true; holder.append(box);
    return (text, event) => {
      box.hidden = !text;
      if (!text) return;
      const place = holder.getBoundingClientRect();
      box.textContent = text;
      box.style.left = `${Math.max(0, Math.min(event.clientX - place.left + 12, place.width - box.offsetWidth - 4))}px`; box.style.top = `${event.clientY - place.top + 14}px`;
    };
  };

  const SHAPES = {
    circle: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`, square: (r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
    diamond: (r) => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0z`, "triangle-up": (r) => `M0 ${-1.2 * r}L${1.2 * r} ${r}H${-1.2 * r}z`,
    cross: (r) => { const t = r / 2.4; return `M${-t} ${-r}h${2 * t}v${r - t}h${r - t}v${2 * t}h${t - r}v${r - t}h${-2 * t}v${t - r}h${t - r}v${-2 * t}h${r - t}z`; },
  };
  SHAPES.x = SHAPES.cross; SHAPES.star = SHAPES["triangle-up"]; SHAPES.hexagon = SHAPES.square;

  // An axis: a function from values to 0…1, and its ticks.
  const axisOf = (axis, values) => {
    const isLog = axis.type === "log", known = values.filter((v) => Number.isFinite(v) && (!isLog || v > 0)), f = isLog ? Math.log10 : (v) => v;
    let low = known.reduce((m, v) => Math.min(m, f(v)), Infinity), high = known.reduce((m, v) => Math.max(m, f(v)), -Infinity);
    if (axis.rangemode === "tozero") low = Math.min(0, low);
    const room = (high - low || 1) * 0.05; high += room; if (axis.rangemode !== "tozero") low -= room;
    let ticks = axis.tickvals?.map((value, i) => [value, axis.ticktext[i]]);
    if (!ticks && isLog) ticks = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, i) => 10 ** (Math.floor(low) + i)).map((v) => [v, v < 0.001 || v >= 1e6 ? v.toExponential(0) : String(Number(v.toPrecision(1)))]);
    if (!ticks) {
      const power = 10 ** Math.floor(Math.log10((high - low) / 5)), step = [1, 2, 5, 10].map((m) => m * power).find((s) => (high - low) / s <= 6);
      ticks = Array.from({ length: 9 }, (_, i) => (Math.ceil(low / step) + i) * step).map((v) => [v, TA.digits(Number(v.toPrecision(6)))]);
    }
    return { place: (v) => (f(v) - low) / (high - low), ticks: ticks.filter(([v]) => f(v) >= low && f(v) <= high) };
  };

  const DASHES = { dash: "8 5", dot: "2 4", dashdot: "8 4 2 4" };
  const scatter = (holder, figure) => {
    const { layout } = figure, width = holder.clientWidth || 600, height = layout.height ?? 340, isNarrow = width < 520, left = isNarrow ? 52 : 70, right = 12, top = 8, bottom = 46;
    const shown = figure.data.filter((trace) => !trace.hidden), [x, y] = ["x", "y"].map((name) => axisOf(layout[`${name}axis`], figure.data.flatMap((trace) => trace[name])));
    const px = (v) => left + x.place(v) * (width - left - right), py = (v) => height - bottom - y.place(v) * (height - top - bottom);
    const drawing = svg("svg", { width, height, class: "own-chart", "aria-hidden": "true" });
    let done = -Infinity;
    for (const [value, text] of x.ticks) {
      const at = px(value);
      drawing.append(svg("line", { x1: at, x2: at, y1: top, y2: height - bottom, class: "grid" }));
      if (at - done < 8 + 6.2 * text.length) continue;
      drawing.append(svg("text", { x: at, y: height - bottom + 17, "text-anchor": "middle" }, text)); done = at;
    }
    done = Infinity;
    for (const [value, text] of y.ticks) {
      const at = py(value);
      drawing.append(svg("line", { x1: left, x2: width - right, y1: at, y2: at, class: "grid" }));
      if (done - at > 15) { drawing.append(svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, text)); done = at; }
    }
    drawing.append(svg("text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, layout.xaxis.title.text), svg("text", { x: 13, y: height / 2, transform: `rotate(-90 13 ${height / 2})`, "text-anchor": "middle" }, layout.yaxis.title.text));
    for (const note of layout.annotations ?? []) drawing.append(svg("text", { x: width - right - 4, y: top + 14, "text-anchor": "end" }, note.text));
    for (const trace of shown) {
      const group = svg("g", { class: trace.mode });
      if (trace.mode === "lines") {
        const points = trace.x.map((v, i) => [px(v), py(trace.y[i])]);
        const d = points.map(([a, b], i) => (i === 0 ? `M${a.toFixed(1)} ${b.toFixed(1)}` : trace.line.shape === "hv" ? `H${a.toFixed(1)}V${b.toFixed(1)}` : `L${a.toFixed(1)} ${b.toFixed(1)}`)).join("");
        group.append(svg("path", { d, fill: "none", stroke: trace.line.color, "stroke-width": trace.line.width, "stroke-dasharray": DASHES[trace.line.dash] ?? "none" }));
      } else trace.x.forEach((v, i) => {
        const size = (Array.isArray(trace.marker.size) ? trace.marker.size[i] : trace.marker.size) / 2, shape = SHAPES[trace.marker.symbol ?? "circle"] ?? SHAPES.circle;
        group.append(svg("path", { class: "point", d: shape(size), transform: `translate(${px(v).toFixed(1)} ${py(trace.y[i]).toFixed(1)})`, fill: trace.marker.color, "fill-opacity": trace.marker.opacity ?? 1, "data-at": i }));
      });
      group.trace = trace; drawing.append(group);
    }
    const legend = document.createElement("div");
    legend.className = "legend own-legend";
    for (const trace of figure.data) {
      const item = document.createElement("button"), swatch = svg("svg", { width: 16, height: 12, "aria-hidden": "true" }), colour = trace.marker?.color ?? trace.line.color;
      swatch.append(trace.mode === "lines" ? svg("line", { x1: 0, x2: 16, y1: 6, y2: 6, stroke: colour, "stroke-width": 2, "stroke-dasharray": DASHES[trace.line.dash] ?? "none" }) : svg("path", { d: (SHAPES[trace.marker.symbol ?? "circle"] ?? SHAPES.circle)(4.5), transform: "translate(8 6)", fill: colour }));
      item.type = "button"; item.setAttribute("aria-pressed", String(!trace.hidden)); item.append(swatch, ` ${trace.name}`);
      item.addEventListener("click", () => { trace.hidden = !trace.hidden; TA.ownChart(holder, figure); });
      legend.append(item);
    }
    holder.replaceChildren(legend, drawing);
    const tip = tipOf(holder);
    drawing.addEventListener("pointermove", (event) => {
      const group = event.target.closest("g.markers, g.lines"), trace = group?.trace;
      if (!trace || trace.hoverinfo === "name") { tip(trace?.name ?? "", event); return; }
      let at = Number(event.target.dataset.at);
      if (trace.mode === "lines") { const wanted = event.clientX - drawing.getBoundingClientRect().left; at = trace.x.findLastIndex((v) => px(v) <= wanted); }
      tip(at >= 0 ? hover(trace, at) : "", event);
    });
    drawing.addEventListener("pointerleave", (event) => tip("", event));
  };

  // Letters that can be read on a block, whatever the theme: by the block's own brightness.
  const inkOn = (colour) => { const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)); return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000" : "#fff"; };
  // A block of several kinds has no kind's colour: a quiet one, of the theme.
  const PLAIN = "#ECE7DD", fillOf = (colour) => (colour === PLAIN ? "var(--block)" : colour), lettersOn = (colour) => (colour === PLAIN ? "var(--ink)" : inkOn(colour));
  const LEVEL = 46, LETTER = 7.1;
  const icicle = (holder, figure) => {
    const trace = figure.data.find((each) => each.visible !== false), width = holder.clientWidth || 600, depth = trace.maxdepth ?? 6;
    const children = new Map();
    trace.parents.forEach((parent, at) => { if (!children.has(parent)) children.set(parent, []); children.get(parent).push(at); });
    children.forEach((own) => own.sort((a, b) => trace.values[b] - trace.values[a]));
    const root = trace.ids.indexOf(trace.top ?? "") >= 0 ? trace.ids.indexOf(trace.top) : children.get("")[0], whole = trace.values[children.get("")[0]];
    const drawing = svg("svg", { width, height: depth * LEVEL, class: "own-chart icicle" });
    const say = (at) => `${trace.labels[at]} · ${TA.digits(trace.values[at])} ms, ${(100 * trace.values[at] / whole).toFixed(1)} % of the rank`;
    const draw = (at, x, w, level) => {
      if (w < 0.4 || level >= depth) return;
      const colour = trace.marker.colors[at], parent = trace.parents[at], block = svg("g", { role: "button", "data-at": at, "aria-label": say(at), ...(w > 12 ? { tabindex: 0 } : {}) });
      block.append(svg("rect", { x, y: level * LEVEL, width: Math.max(0.4, w - 1), height: LEVEL - 1, fill: fillOf(colour) }));
      if (trace.marker.pattern?.shape[at]) block.append(svg("rect", { x, y: level * LEVEL, width: Math.max(0.4, w - 1), height: LEVEL - 1, class: "p-both" }));
      const text = trace.text[at], fits = Math.floor((w - 8) / LETTER);
      if (fits >= Math.min(4, text.length)) block.append(svg("text", { class: "slicetext", x: x + 4, y: level * LEVEL + LEVEL / 2 + 4, fill: lettersOn(colour) }, text.length <= fits ? text : `${text.slice(0, fits - 1)}…`));
      const into = () => { trace.top = at === root && parent !== "" ? parent : trace.ids[at]; icicle(holder, figure); holder.querySelector(".icicle g").focus(); };
      block.addEventListener("click", into);
      block.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); into(); } });
      drawing.append(block);
      let from = x;
      for (const child of children.get(trace.ids[at]) ?? []) { const own = (w * trace.values[child]) / trace.values[at]; draw(child, from, own, level + 1); from += own; }
    };
    draw(root, 0, width, 0);
    holder.replaceChildren(drawing);
    const tip = tipOf(holder);
    drawing.addEventListener("pointermove", (event) => { const block = event.target.closest("g[data-at]"); tip(block ? say(Number(block.dataset.at)) : "", event); });
    drawing.addEventListener("pointerleave", (event) => tip("", event));
  };

  TA.ownChart = (holder, figure) => {
    holder.setAttribute("role", "group");
    (figure.data[0].type === "icicle" ? icicle : scatter)(holder, figure);
    holder.dataset.drawn = "yes";
  };
})();
