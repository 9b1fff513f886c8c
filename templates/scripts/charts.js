"use strict";
// Charts are drawn when they scroll into view: by the page itself, or by plotly, whose script is unpacked for the first of those.
(async () => {
  const figures = [...document.querySelectorAll("script.figure")];
  if (!figures.length) return;
  // Base85 as Python's b85encode writes it, with / for <: five digits are four bytes. Before it stands how many bytes are padding.
  const unpacked85 = (text) => {
    const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;/=>?@^_`{|}~", value = new Uint8Array(128);
    for (let at = 0; at < 85; at += 1) value[digits.charCodeAt(at)] = at;
    const bytes = new Uint8Array((text.length - 1) / 5 * 4);
    for (let at = 1, to = 0; at < text.length; to += 4) {
      let word = 0;
      for (let place = 0; place < 5; place += 1) word = word * 85 + value[text.charCodeAt(at++)];
      bytes[to] = word >>> 24; bytes[to + 1] = word >>> 16; bytes[to + 2] = word >>> 8; bytes[to + 3] = word;
    }
    return bytes.subarray(0, bytes.length - Number(text[0]));
  };
  let loading = null;
  const load = () => (loading ??= new Promise((resolve, reject) => {
    const packed = document.getElementById("plotly-packed"), script = document.createElement("script");
    if (!packed) { script.src = JSON.parse(document.getElementById("plotly-place").textContent); script.onload = resolve; script.onerror = reject; document.head.append(script); return; }
    globalThis.TA.inflated(unpacked85(JSON.parse(packed.textContent))).then((bytes) => {
      // The page's policy lists the hash of exactly this text.
      script.textContent = new TextDecoder().decode(bytes); document.head.append(script); resolve();
    }, reject);
  }));
  const themed = (figure) => {
    const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = (own) => ({ gridcolor: of("rule"), zerolinecolor: of("rule"), linecolor: of("quiet"), automargin: true, ...own });
    const { layout } = figure, axes = Object.fromEntries(Object.entries(layout).filter(([name]) => /^[xy]axis/.test(name)).map(([name, own]) => [name, axis(own)]));
    return { ...layout, ...axes, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: of("ink") }, autosize: true };
  };
  // A figure that has a trace for each rank shows one, which a menu above it chooses.
  const chooser = (holder, figure) => {
    const what = figure.layout.meta?.choose;
    if (!what || figure.data.length < 2) return;
    const label = document.createElement("label"), select = document.createElement("select");
    select.append(...figure.data.map((trace, at) => new Option(trace.name, at)));
    select.value = figure.data.findIndex((trace) => trace.visible !== false);
    select.addEventListener("change", () => {
      figure.data.forEach((trace, at) => { trace.visible = at === Number(select.value); });
      draw(holder, figure);
    });
    label.className = "chart-tools"; label.append(`${what} `, select); holder.before(label);
  };
  const draw = async (holder, figure) => {
    if (holder.dataset.own) { globalThis.TA.ownChart(holder, figure); return; }
    try { await load(); } catch { holder.textContent = "The chart's script could not be loaded; the table has its figures."; return; }
    if (!holder.dataset.drawn) holder.replaceChildren();  // the note that the chart is loading
    await globalThis.Plotly.react(holder, figure.data.filter((trace) => trace.visible !== false), themed(figure), { responsive: true, displayModeBar: false });
    holder.dataset.drawn = "yes";
  };
  // A long figure is a text: deflated, in base64.
  const figureOf = async (source) => {
    const content = JSON.parse(source.textContent);
    return typeof content === "string" ? JSON.parse(new TextDecoder().decode(await globalThis.TA.inflate(content))) : content;
  };
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; all.filter(([holder]) => holder.dataset.drawn && holder.dataset.own).forEach((pair) => draw(...pair)); });
  const all = await Promise.all(figures.map(async (source) => [document.getElementById(source.dataset.for), await figureOf(source)]));
  const watch = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
    watch.unobserve(entry.target); draw(...all.find(([holder]) => holder === entry.target));
  }), { rootMargin: "200px" });
  all.forEach(([holder, figure]) => { chooser(holder, figure); watch.observe(holder); });
  document.addEventListener("themechange", () => all.filter(([holder]) => holder.dataset.drawn).forEach((pair) => draw(...pair)));
})();
