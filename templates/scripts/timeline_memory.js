"use strict";
// The lane of a rank's memory by category: stacked, the peak marked; a click tells what is held at that moment.
(() => {
  const TA = globalThis.TA;
  const UNIT = 512; // the allocator's: what it gives is a multiple
  const SHADES = [1, 0.72, 0.5, 0.32, 0.2];

  // After starts and lengths each category's bytes; the value is their sum.
  TA.readMemory = (counter, read) => {
    counter.levels = counter.parts.map(() => read(counter.count).map((blocks) => blocks * UNIT));
    counter.value = counter.start.map((_, i) => counter.levels.reduce((sum, level) => sum + level[i], 0));
    counter.most = counter.value[counter.peak];
    return counter;
  };

  const paint = (ctx, view, part, isUnknown) => {
    ctx.fillStyle = isUnknown ? view.colours.idle : view.colours.counter;
    ctx.globalAlpha = isUnknown ? 0.6 : SHADES[part % SHADES.length];
  };

  TA.drawMemory = (ctx, view, { counter, height }, y) => {
    const high = height - 3, base = y + high, last = counter.parts.length - 1;
    for (let i = Math.max(0, TA.rowAt(counter.start, view.t0)); i < counter.count && counter.start[i] < view.t1; i++) {
      const [a, b] = TA.clipped(view, counter.start[i], counter.start[i] + counter.length[i]);
      if (b <= a) continue;
      let at = base;
      for (let part = last; part >= 0; part--) { // unknown, what was there before, lies at the bottom
        const size = (high * counter.levels[part][i]) / counter.most;
        paint(ctx, view, part, part === last); ctx.fillRect(a, at - size, Math.max(0.6, b - a), size); at -= size;
      }
    }
    ctx.globalAlpha = 1;
    ctx.fillStyle = view.colours.rule; ctx.fillRect(view.left, base, view.width - view.left, 1);
    mark(ctx, view, counter, counter.peak, y, high, view.colours.care);
    if (view.memory?.counter === counter) mark(ctx, view, counter, view.memory.at, y, high, view.colours.ink);
  };
  const mark = (ctx, view, counter, i, y, high, colour) => {
    const [x] = TA.clipped(view, counter.start[i], counter.start[i] + Math.max(1, counter.length[i]));
    if (counter.start[i] < view.t0 || counter.start[i] > view.t1) return;
    ctx.fillStyle = colour; ctx.fillRect(x - 0.5, y, 1.5, high);
    ctx.beginPath(); ctx.moveTo(x - 4, y); ctx.lineTo(x + 4, y); ctx.lineTo(x, y + 6); ctx.closePath(); ctx.fill();
  };

  const held = (counter, i) => counter.parts.map((name, part) => [name, counter.levels[part][i]]).filter(([, bytes]) => bytes > 0);
  TA.memoryText = (counter, i) => `${counter.name}: ${TA.bytes(counter.value[i])}${i === counter.peak ? ", the peak" : ""} · ${held(counter, i).map(([name, bytes]) => `${name} ${TA.bytes(bytes)}`).join(", ")}`;

  // What is held at a moment; near the peak's mark, and without a moment, at the peak.
  TA.memoryDetails = (rank, counter, t) => {
    const { view } = TA, slack = (6 * (view.t1 - view.t0)) / (view.width - view.left);
    const at = t === undefined || Math.abs(t - counter.start[counter.peak]) <= slack ? counter.peak : Math.max(0, TA.rowAt(counter.start, t));
    view.selected = null; view.awaited = null; view.memory = { counter, at };
    const facts = [[at === counter.peak ? "Memory at the peak" : "Memory", TA.bytes(counter.value[at])], ["Rank", rank.rank], ["At", TA.time(counter.start[at])], ...held(counter, at).map(([name, bytes]) => [name, `${TA.bytes(bytes)}, ${Math.round((100 * bytes) / counter.value[at])} %`])];
    document.getElementById("tl-details").replaceChildren(TA.listed(facts));
    TA.redraw();
  };
})();
