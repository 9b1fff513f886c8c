"use strict";
// The timeline as a file for Perfetto: the trace events that `analyze-traces export` writes, from the page's own columns.
(() => {
  const TA = globalThis.TA;
  const COLOURS = TA.words.viewer;
  const us = (ns) => Math.round(ns) / 1000;

  // Slices that overlap one of their track go to a track of their own beside it.
  const lanes = (slices) => {
    const made = [];
    for (const slice of slices.sort((a, b) => a.start - b.start || a.end - b.end)) {
      let lane = made.find((own) => own.end <= slice.start);
      if (!lane) made.push((lane = { slices: [] }));
      lane.slices.push(slice); lane.end = slice.end;
    }
    return made.map((lane) => lane.slices);
  };

  const operations = (data, rank) => {
    const streams = rank.streams.map((stream) => [`stream ${stream}`, []]);
    for (let i = 0; i < rank.count; i++) {
      const [short, name, kind] = data.names[rank.name[i]], start = rank.start[i], end = rank.end[i], place = rank.place[i], into = streams[rank.stream[i]][1];
      const args = { name }, wait = kind === "comm" ? Math.min(Math.max(0, rank.wait[place] - 1), end - start) : 0;
      if (rank.step[i]) args.step = rank.step[i] - 1;
      if (rank.launch[i]) args.launch = data.launches[rank.launch[i] - 1];
      if (kind === "comm" && rank.call[place]) args.call = data.calls[rank.call[place] - 1];
      if (kind === "comm" && rank.why[place]) args.why_not_split = data.whys[rank.why[place] - 1];
      const bytes = kind === "comm" ? rank.callBytes[place] : kind === "copy" ? rank.copyBytes[place] : 0;
      if (bytes) args.size_bytes = bytes - 1;
      if (wait) into.push({ name: `wait · ${short}`, start, end: start + wait, colour: COLOURS.wait, args });
      if (!wait || start + wait < end) into.push({ name: short, start: start + wait, end, colour: COLOURS[kind === "comm" ? "transfer" : kind], args });
    }
    return streams;
  };

  const tracksOf = (data, rank) => {
    const mark = (list, name) => list.map((item) => ({ name: name(item), start: item[2], end: item[3], colour: COLOURS.mark }));
    const depths = [...new Set(rank.bands.map((band) => band[4]))].sort((a, b) => a - b);
    const gaps = [...rank.gap.start].map((start, i) => {
      const cause = data.causes[rank.gap.cause[i]], doing = rank.gap.doing[i];
      return { name: `idle: ${cause}`, start, end: start + rank.gap.length[i], colour: COLOURS[TA.words.causes[cause].kind], ...(doing ? { args: { host: data.doings[doing - 1] } } : {}) };
    });
    return [["steps", mark(rank.steps, (step) => `step ${step[1]}`)],
      ...depths.map((depth) => [depth ? `ranges, ${depth} deep` : "ranges", mark(rank.bands.filter((band) => band[4] === depth), (band) => band[1])]),
      ["idle", gaps], ...operations(data, rank)];
  };

  const ofRank = (data, rank) => {
    const pid = rank.rank, events = [], named = (name, tid, args) => events.push({ ph: "M", name, pid, tid, args });
    named("process_name", 0, { name: `rank ${pid}` }); named("process_sort_index", 0, { sort_index: pid });
    let tid = 0;
    for (const [track, slices] of tracksOf(data, rank)) lanes(slices).forEach((lane, at) => {
      named("thread_name", tid, { name: at ? `${track} (${at + 1})` : track }); named("thread_sort_index", tid, { sort_index: tid });
      for (const { name, start, end, colour, args } of lane) events.push({ ph: "X", name, pid, tid, ts: us(start), dur: us(end - start), cname: colour, ...(args ? { args } : {}) });
      tid++;
    });
    return events;
  };

  // Pieces of the file's text, a rank at a time: one string of a long run would be too long for some browsers.
  TA.traceEvents = (data, label) => {
    const head = `{"displayTimeUnit":"ns","otherData":${JSON.stringify({ label, zero_ns: data.zero })},"traceEvents":[\n`;
    return [head, ...data.ranks.map((rank, at) => `${at ? ",\n" : ""}${ofRank(data, rank).map((event) => JSON.stringify(event)).join(",\n")}`), "\n]}\n"];
  };

  TA.saveTraceEvents = async (data) => {
    const label = document.querySelector("h1").textContent, packed = new Blob(TA.traceEvents(data, label)).stream().pipeThrough(new CompressionStream("gzip"));
    const link = document.createElement("a"), url = URL.createObjectURL(await new Response(packed).blob());
    link.href = url; link.download = `${label.replace(/[^\w.-]+/g, "_")}.perfetto.json.gz`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  };
})();
