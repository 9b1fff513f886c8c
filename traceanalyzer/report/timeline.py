"""The data of a page's timeline."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.communication.clocks import Clock, common_clock
from traceanalyzer.analyses.communication.groups import labels as group_labels
from traceanalyzer.analyses.grouping import row_blocks
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import API_CALL, FRAME, OPERATOR, RANGE
from traceanalyzer.analyses.host.idle import GapTable
from traceanalyzer.analyses.memory.memory import COLUMN
from traceanalyzer.analyses.timeline import LEVELS, MOST_OPERATIONS, MOST_RANKS, fitting, most_unlike_first
from traceanalyzer.files.spill import give_back_grown
from traceanalyzer.findings import Finding, named_ranks
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import is_known
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.vocabulary import BETWEEN_KERNELS, IDLE, IDLE_CAUSES, KINDS, UNMATCHED, WAIT, numbered
from traceanalyzer.report.assets import packed
from traceanalyzer.report.layout import LAYOUT
from traceanalyzer.report.words import Split, headline_steps

# Columns of whole numbers as bytes for a page: runs of unsigned LEB128 numbers.


def varints(values: np.ndarray) -> bytes:
    """Unsigned LEB128 of each value, one after the other.

    Raises:
        ValueError: a value is negative.
    """
    if len(values) and values.min() < 0:
        raise ValueError("only values from 0 have an unsigned code")
    return b"".join(_block(values[rows].astype(np.int64)) for rows in row_blocks(len(values)))


def _block(numbers: np.ndarray) -> bytes:
    most = max(1, -(-int(numbers.max(initial=0)).bit_length() // 7))
    rest = numbers[:, np.newaxis] >> (7 * np.arange(most))
    digits, is_held = rest & 127, rest > 0
    is_held[:, 0] = True
    digits[:, :-1] |= 128 * is_held[:, 1:]
    return digits[is_held].astype(np.uint8).tobytes()


def or_zero(values: pd.Series) -> np.ndarray:
    """One more than each value, 0 where it is absent."""
    numbers: np.ndarray = (values.astype("Int64") + 1).fillna(0).to_numpy(dtype=np.int64)
    return numbers


def steps_of(values: np.ndarray) -> np.ndarray:
    """Each value less the one before it; the first is 0."""
    made: np.ndarray = np.diff(values, prepend=values[:1])
    return made


def signed(values: np.ndarray) -> np.ndarray:
    """Values of either sign as such from 0: 0, -1, 1, -2, 2, … become 0, 1, 2, 3, 4, …."""
    made: np.ndarray = np.where(values < 0, -2 * values - 1, 2 * values)
    return made


def _frame(results: Results, name: str, ranks: Collection[int] | None = None) -> pd.DataFrame:
    """A Result's table, of these ranks; an empty one where it is not there."""
    frame: pd.DataFrame = results[name].to_frame() if name in results else pd.DataFrame(columns=["rank"])
    return frame if ranks is None else frame[frame["rank"].isin(ranks)]


# Counters below a rank's lanes: the launch queue, memory, the GPU's own counters.
#
# For each counter of each rank come, as columns: start after the previous start, length of the bin, and the value in
# thousandths of the largest; of memory by category, instead of the value, a column for each category that there is, in
# the allocator's units of 512 bytes.


QUEUE = "launch queue"

ALLOCATED = LEVELS["memory_allocated_bytes"]

UNIT_BYTES = 512
"""What PyTorch's allocator gives is a multiple of this; the page's script has the same."""


def counter_lanes(results: Results, order: Sequence[int], clock: Clock) -> tuple[list[dict[str, Any]], bytes]:
    """What each counter is, and the columns, of the first ranks of `order`."""
    entries, columns = [], []
    for rank in order[:MOST_RANKS]:
        stacked, levels = _by_category(results, rank, clock)
        for name, unit, own in _of_rank(results, rank):
            if stacked and name == ALLOCATED:
                continue
            starts = own["start_ns"].to_numpy(dtype=np.int64)
            values = own["value"].to_numpy(dtype=np.float64)
            most = float(values.max())
            if most <= 0:
                continue
            entries.append({"rank": rank, "name": name, "unit": unit, "most": most, "count": len(own),
                            "first": clock.place(rank, int(starts[0]))})  # fmt: skip
            columns += [steps_of(starts), own["length_ns"].to_numpy(dtype=np.int64), np.rint(1000 * values / most)]
        entries += stacked
        columns += levels
    return entries, b"".join(map(varints, columns))


def _of_rank(results: Results, rank: int) -> Iterator[tuple[str, str, pd.DataFrame]]:
    stretches = _frame(results, "gpu_utilization", [rank])
    if len(stretches) and stretches["mean_depth"].notna().any():
        yield QUEUE, "", stretches.assign(value=stretches["mean_depth"].astype("Float64").fillna(0))
    counters = _frame(results, "counter_series", [rank])
    if len(counters):
        for name, rows in counters.groupby("counter", sort=False):
            yield str(name), _unit(str(name), str(rows["source"].iloc[0])), rows


def _by_category(results: Results, rank: int, clock: Clock) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    """The rank's memory over time, stacked; nothing where the trace does not tell."""
    own = _frame(results, "memory_levels", [rank])
    if own.empty or own["allocated_bytes"].max() <= 0:
        return [], []
    starts = own["time_ns"].to_numpy(dtype=np.int64)
    known = {name: own[column].to_numpy(dtype=np.int64) for name, column in COLUMN.items()}
    levels = {name: np.maximum(bytes_, 0) // UNIT_BYTES for name, bytes_ in known.items() if bytes_.max() > 0}
    entry = {"rank": rank, "name": ALLOCATED, "unit": "B", "count": len(own), "parts": list(levels),
             "peak": int(own["is_peak"].to_numpy().argmax()), "first": clock.place(rank, int(starts[0]))}  # fmt: skip
    return [entry], [steps_of(starts), np.append(np.diff(starts), 1), *levels.values()]


def _unit(name: str, source: str) -> str:
    return "B" if name.startswith("memory") else "%" if "%" in source or ".pct" in source else ""


# What a timeline shows first: which ranks stand on top, in what groups the others lie, which stretch is in view.


def pins(
    findings: Sequence[Finding], split: Split | None, kept: Iterable[int], results: Results | None = None
) -> list[dict[str, Any]]:
    """`rank` and `why` of the ranks on top: stragglers, by the first finding that names them, and who waits most.

    Of stragglers by several causes that hide each other the first three. Where no finding names a straggler,
    the one that the first finding speaks of. Of several ranks the one that the finding calls the worst, else the one on
    which most of the critical path lies.
    """
    there = set(kept)
    lengths = _path_ns(results).to_dict() if results is not None else {}
    found: dict[int, str] = {}
    for finding in findings:
        late = [rank for rank in finding.ranks if rank in there]
        if late and finding.cause and " and " in finding.cause:  # several that hide each other
            found |= {rank: f"straggler: {_cause(_own_cause(finding, rank))}" for rank in late[: LAYOUT.named]}
            break
        if late:
            worst = _weightiest(late, lengths)
            found[worst] = f"straggler: {_cause(finding.cause)}" if finding.cause else "straggler"
            break
    first = [rank for rank in named_ranks(findings[:1]) if rank in there]
    if not found and first and len(there) > 1:
        found[_weightiest(first, lengths)] = "in the first finding"
    victim = _waits_most(split, there - set(found))
    if victim is not None:
        found.setdefault(*victim)
    if not found and there:
        found = {min(there): ""}
    return [{"rank": rank, "why": why} for rank, why in found.items()]


def _own_cause(finding: Finding, rank: int) -> str:
    """Why this rank is late, by what is said of it alone; all causes where nothing is."""
    own = (each.cause for each in finding.also if each.cause and each.ranks == (rank,))
    return next(own, finding.cause or "")


def _weightiest(ranks: Sequence[int], lengths: Mapping[int, int]) -> int:
    return max(ranks, key=lambda rank: lengths.get(rank, 0))


def meant_ranks(finding: Finding) -> list[int]:
    """The ranks to look at for a finding: those that it blames, else the first that its words name; at most two."""
    return ([*finding.ranks] or named_ranks([finding])[:1])[:2]


def _cause(cause: str) -> str:
    labels = {each.key: each.label for each in IDLE_CAUSES}
    return " and ".join(labels.get(each, each) for each in cause.split(" and "))


def _waits_most(split: Split | None, ranks: set[int]) -> tuple[int, str] | None:
    """The rank with the longest waits, and its label; where waits are unknown, with the longest calls."""
    if split is None or not split.has_wait:
        return None
    table = split.table[split.table["rank"].isin(ranks)].set_index("rank")
    for column, why, least_pct in ((WAIT.share, "waits most", 1.0), (UNMATCHED.share, "longest in calls", 10.0)):
        share = table[column].astype("float64")
        if len(share) and share.max() >= least_pct:
            return int(share.idxmax()), why
    return None


def rank_groups(results: Results, kept: Sequence[int]) -> list[dict[str, Any]]:
    """`name` and `ranks` of each group, by host where captures name several, else blocks of 8; none of few ranks."""
    if len(kept) <= LAYOUT.ungrouped_ranks:
        return []
    hosts = results["ranks"].table.set_index("rank")["host"] if "ranks" in results else pd.Series(dtype="object")
    known = hosts.reindex(kept)
    if known.notna().all() and 1 < known.nunique() < len(kept):
        named = [(str(host), [int(rank) for rank in own.index]) for host, own in known.groupby(known, sort=False)]
    else:
        blocks = sorted({rank // LAYOUT.node_ranks for rank in kept})
        named = [(f"node {block}", [rank for rank in kept if rank // LAYOUT.node_ranks == block]) for block in blocks]
    return [{"name": name, "ranks": ranks} for name, ranks in named]


def opening(results: Results) -> int | None:
    """The first complete step that all ranks have; `None` without any."""
    return min(headline_steps(results), default=None) if "headline" in results else None


# The threads of the host, as far as they fit: the longest events of the ranks that matter most.
#
# For each lane (a thread's ranges, operators and calls; or its Python frames) come, as columns, in units of
# 100 ns: start
# after the previous start, length; then the name and the depth.


UNIT_NS = 100

HOST_LANES_KINDS = {RANGE: "range", OPERATOR: "operator", API_CALL: "call", FRAME: "frame"}
"""What events are called in the page; calls that synchronise are `sync`."""


def host_lanes(results: Results, order: Sequence[int], clock: Clock) -> tuple[dict[str, Any], bytes]:
    """Names and lanes, and their columns, of the first `MOST_RANKS` ranks of `order`."""
    frame = _frame(results, "host_events")
    if frame.empty:
        return {"names": [], "lanes": [], "unit": UNIT_NS, "note": ""}, b""
    known = set(frame["rank"].unique())
    ranks = [rank for rank in order if rank in known][:MOST_RANKS]
    frame = frame[frame["rank"].isin(ranks)]
    recorded = int(frame.groupby("rank")["recorded"].first().sum())
    frame = frame.assign(ns=frame["end_ns"] - frame["start_ns"], is_frame=frame["what"] == FRAME)
    drawn = frame.loc[np.sort(frame["ns"].nlargest(LAYOUT.cpu_events, keep="first").index)]
    name, names = _named(drawn)
    drawn = drawn.assign(said=name)
    lanes, columns = [], []
    for (rank, thread, is_frame), own in drawn.groupby(["rank", "thread", "is_frame"], sort=False):
        entry, made = _lane(own.sort_values(["start_ns", "depth"], kind="stable"), clock, rank)
        lanes.append(
            {"rank": int(rank), "thread": int(thread), "role": own["role"].iloc[0], "frames": bool(is_frame), **entry}
        )
        columns += made
    meta = {"names": names, "lanes": lanes, "unit": UNIT_NS,
            "note": note(len(drawn), recorded, drawn["ns"].min(), ranks, len(order))}  # fmt: skip
    return meta, b"".join(map(varints, columns))


def _named(drawn: pd.DataFrame) -> tuple[np.ndarray, list[list[str]]]:
    """Each row's number among the distinct [what, short name], most frequent first: those have the shortest codes."""
    what = drawn["what"].astype("str").map(HOST_LANES_KINDS)
    is_sync = (what == "call") & host_names.matches(drawn["name"].astype("category"), host_names.is_sync)
    pair = what.mask(is_sync, "sync") + "\n" + drawn["name"].astype("str")
    counts = pair.value_counts()
    codes = pd.Series(range(len(counts)), index=counts.index)
    names = [text.split("\n", 1) for text in counts.index]
    return pair.map(codes).to_numpy(), [[what, short_name(name)] for what, name in names]


def _lane(own: pd.DataFrame, clock: Clock, rank: int) -> tuple[dict[str, Any], list[np.ndarray]]:
    shift = clock.shift_ns(rank) + clock.zero_ns
    starts = (own["start_ns"].to_numpy(dtype=np.int64) - shift) // UNIT_NS
    ends = (own["end_ns"].to_numpy(dtype=np.int64) - shift) // UNIT_NS
    depth = own["depth"].to_numpy(dtype=np.int64)
    # Levels that no event of the lane is drawn in are closed up.
    levels = np.unique(depth)
    place = np.searchsorted(levels, depth)
    entry = {"count": len(own), "first": int(starts[0]), "levels": len(levels)}
    return entry, [steps_of(starts), ends - starts, own["said"].to_numpy(), place]


def note(drawn: int, recorded: int, least_ns: int, ranks: Sequence[int], of_ranks: int) -> str:
    """What is not drawn."""
    sentences = []
    if drawn < recorded:
        least = max(1, round(least_ns / 1000))
        sentences.append(f"The {drawn:,} longest of {recorded:,} CPU events are drawn: all above {least} µs.")
    if len(ranks) < of_ranks:
        sentences.append(f"CPU threads are drawn for {numbered('rank', ranks)}.")
    return " ".join(sentences)


# What ties a timeline's operations to others: their instance, who was awaited, the launching thread.
#
# For each rank come, as columns: of its communication operations the instance (0: none, else one more) and the rank
# that was awaited (0: none, else one more); of all its operations the thread of the launch, as its place in `threads`
# (0: none, else one more).


def links(operations: Mapping[int, pd.DataFrame], kept: list[int], results: Results) -> tuple[dict[str, Any], bytes]:
    """Of the operations of the ranks `kept`: what the columns mean, and the columns."""
    waits = _by_call(_frame(results, "call_waits"))
    threads: list[list[int]] = []
    columns: list[np.ndarray] = []
    for rank in kept:
        own = operations[rank]
        awaited = _of_calls(own, waits.get(rank), ("instance", "waits_for"))
        thread, known = pd.factorize(own["launch_thread"])
        threads.append([int(number) for number in known])
        columns += [*awaited, thread + 1]
    return {"threads": threads}, b"".join(map(varints, columns))


def _by_call(calls: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """The calls of each rank, by number."""
    return {int(rank): own.set_index("call") for rank, own in calls.groupby("rank")}


def _of_calls(operations: pd.DataFrame, calls: pd.DataFrame | None, names: Sequence[str]) -> list[np.ndarray]:
    """Of a rank's communication operations these columns of its calls; 0 where they are not known."""
    own = operations.loc[operations["kind"] == "comm", "call"].astype("int64")
    if calls is None:
        return [np.zeros(len(own), dtype=np.int64)] * len(names)
    rows = calls.reindex(own)
    return [or_zero(rows[name]) for name in names]


# The columns of a rank's operations.


def operation_columns(
    own: pd.DataFrame, calls: pd.DataFrame | None, clock: Clock, rank: int
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What the page has to know of a rank's columns, and the columns: of operations, of calls, of copies."""
    starts = own["start_ns"].to_numpy(dtype=np.int64) - clock.shift_ns(rank)
    streams, stream_ids = np.unique(own["stream"].to_numpy(dtype=np.int64), return_inverse=True)
    delay = (own["start_ns"] - own["launch_start_ns"]).astype("Int64")
    columns = [
        *(steps_of(starts), (own["end_ns"] - own["start_ns"]).to_numpy(), own["name_id"].to_numpy(), stream_ids),
        *(or_zero(own["step"]), or_zero(delay.where(delay >= 0)), own["launch"].cat.codes.to_numpy() + 1),
        *(own["origin"].to_numpy(), own["around"].to_numpy()),
        *_of_calls(own, calls, ("label", "size_bytes", "wait_ns", "why")),
        or_zero(own.loc[own["kind"] == "copy", "size_bytes"]),
    ]
    entry = {"rank": rank, "count": len(own), "first": int(starts[0] - clock.zero_ns), "streams": streams.tolist()}
    return entry, columns


# The critical path as a line through the timeline's lanes.
#
# Columns: start less the previous start (signed), length, place of the rank among those of the page (0: it is left out,
# else one more), and lane, each a number. Stretches that follow each other in one lane of one rank are one.


LANES = ("host", *(kind.key for kind in KINDS), IDLE.kind)
"""Where the line runs: on the host, in a lane of operations, or on a GPU on which nothing runs."""


def path_line(results: Results, kept: list[int], clock: Clock) -> tuple[dict[str, Any], bytes]:
    """What the line says, and its columns; without a path only why there is none."""
    stretches = _frame(results, "path_stretches")
    if stretches.empty:
        return {"count": 0, "why_not": _why_not(results)}, b""
    table = _drawn(_merged(stretches))
    starts = table["start_ns"].to_numpy(dtype=np.int64) - _base(table, results, clock)
    place = table["rank"].map({rank: at + 1 for at, rank in enumerate(kept)}).fillna(0)
    columns = [
        signed(steps_of(starts)),
        (table["end_ns"] - table["start_ns"]).to_numpy(),
        place.to_numpy(dtype=np.int64),
        table["lane"].to_numpy(dtype=np.int64),
    ]
    meta = {
        "count": len(table),
        "first": int(starts[0]),
        "lanes": LANES,
        "shares": _shares(results),
        "why_not": "",
    }
    return meta, b"".join(map(varints, columns))


def _why_not(results: Results) -> str:
    replay = results.get("replay")
    if replay is None:
        return "the job was not replayed"
    return replay.why_not or "the capture has no complete step to follow"


def _base(table: pd.DataFrame, results: Results, clock: Clock) -> np.ndarray:
    """What is taken from each row's times, to lie on its rank's operations as the page draws them.

    The path's clock takes every known offset from a rank's times, the page's only what is larger than its uncertainty.
    """
    known = results["clocks"].table.set_index("rank")["offset_ns"] if "clocks" in results else pd.Series(dtype="Int64")
    shifts = {
        rank: clock.shift_ns(rank) - (0 if pd.isna(offset := known.get(rank, pd.NA)) else int(offset))
        for rank in table["rank"].unique().tolist()
    }
    made: np.ndarray = (table["rank"].map(shifts) + clock.zero_ns).to_numpy(dtype=np.int64)
    return made


def _merged(stretches: pd.DataFrame) -> pd.DataFrame:
    """One row for each run of stretches in one lane of one rank: its `rank`, `lane` (place in `LANES`), times, `ns`."""
    idle = LANES.index(IDLE.kind)
    lane = stretches["category"].astype("str").map({name: place for place, name in enumerate(LANES)}).fillna(idle)
    lane = lane.mask(stretches["where"] == "host", LANES.index("host"))
    # The GPU's turnaround between two operations of a lane is no stop: it belongs to the lane.
    lane = lane.mask(stretches["category"] == BETWEEN_KERNELS.key).ffill().bfill().fillna(idle)
    table = stretches[["rank", "start_ns", "end_ns"]].assign(
        lane=lane.astype("int64"), ns=stretches["end_ns"] - stretches["start_ns"]
    )
    places = table[["rank", "lane"]]
    return _joined(table, places.ne(places.shift()).any(axis=1).to_numpy())


def _joined(table: pd.DataFrame, begins: np.ndarray) -> pd.DataFrame:
    """A row for each run of rows, with rank and lane of its longest; `begins` marks their first ones."""
    table = table.reset_index(drop=True)
    runs = table.groupby(np.cumsum(begins))
    longest = table.loc[runs["ns"].idxmax()].reset_index(drop=True)
    starts, ends = runs["start_ns"].first().to_numpy(), runs["end_ns"].last().to_numpy()
    return longest.assign(start_ns=starts, end_ns=ends, ns=ends - starts)


def _drawn(table: pd.DataFrame) -> pd.DataFrame:
    """As many as fit: shorter ones than the shortest that does are part of the one before."""
    if len(table) <= LAYOUT.path_stretches:
        return table
    begins = (table["ns"] > table["ns"].nlargest(LAYOUT.path_stretches).iloc[-1]).to_numpy()
    begins[0] = True
    return _joined(table, begins)


def _shares(results: Results) -> list[list[Any]]:
    """[rank, percent of the path], most first."""
    path = _path_ns(results)
    return [[int(rank), round(100 * own / path.sum(), 1)] for rank, own in path[:4].items()]


def _path_ns(results: Results) -> pd.Series:
    """How long the critical path lies on each rank, most first."""
    if "critical_path" not in results or results["critical_path"].table.empty:
        return pd.Series(dtype="int64")
    path = results["critical_path"].table.groupby("rank", sort=False)["path_ns"].sum()
    return path.sort_values(ascending=False, kind="stable")


# The timeline's operations as bytes for a page: columns of differences, deflated, in base64.
#
# A column is a run of unsigned LEB128 numbers. For each rank come, in this order: start after the previous start,
# duration, name, stream, step, launch delay, launch call, operator and what is around it (0: not known, else one
# more); then for its communication operations call label and bytes (0: not known), wait (0: not known, else one more)
# and why there is no wait (0: there is, or it is not known); then bytes of its copies; then of its gaps start after the
# previous start, length, cause and what the host did (0: not known).
# The ranks lie one after the other.


@dataclass(frozen=True, slots=True)
class TimelineData:
    """What the page's script reads.

    Attributes:
        meta: names, ranks, steps, bands and gaps; JSON, deflated, base64.
        operations: columns as above; deflated, base64.
        more: what is read after the first picture: by name a pair of meta and columns (`links`, `path_line`,
            `host_lanes`, `counter_lanes` say which), deflated, base64.
        count: operations in them.
        ranks: ranks in them.
        left_out: ranks that are not.
        clock: how the ranks lie beside each other.
    """

    meta: str
    operations: str
    more: dict[str, tuple[str, str]]
    count: int
    ranks: list[int]
    left_out: list[int]
    clock: Clock


def timeline_data(
    results: Results, findings: Sequence[Finding] = (), split: Split | None = None, table_zero: int = 0
) -> TimelineData | None:
    """All ranks' operations, or those of as many as fit, the ones that findings name first; `None` without any.

    `table_zero` is the moment from which the page's tables count theirs.
    """
    named = named_ranks(findings)
    if "timeline" not in results or not len(results["timeline"]):
        return None
    table = results["timeline"].table
    clock = common_clock(results)
    counts = table.groupby("rank").size()
    kept = _kept(counts, results, named)
    if len(kept) < len(counts):
        table = table[table["rank"].isin(kept)]
    pinned = pins(findings, split, kept, results)
    names, name_ids = _names(table)
    table, operators, paths = _with_origins(table.assign(name_id=name_ids))
    calls, labels, whys = _calls(results)
    gaps, causes, doings = _gaps(results.get("gaps"))
    give_back_grown()
    operations = {int(rank): own for rank, own in table.groupby("rank")}
    entries, columns = [], []
    for rank in kept:
        entry, made = operation_columns(operations[rank], calls.get(rank), clock, rank)
        first_gap, idle = _gap_columns(gaps.get(rank), clock, rank)
        entries.append(entry | first_gap)
        columns += [*made, *idle]
    meta = {
        "zero": str(clock.zero_ns),
        "names": names,
        "calls": labels,
        "whys": whys,
        "launches": [str(name) for name in table["launch"].cat.categories],
        "operators": operators,
        "paths": paths,
        "causes": causes,
        "knows_causes": "gaps" in results,
        "doings": doings,
        "ranks": entries,
        "steps": _bands(results, clock, kept),
        "bands": _ranges(results, clock, kept),
        "pins": pinned,
        "groups": rank_groups(results, kept),
        "few": LAYOUT.expanded_ranks,
        "shifts": [clock.place(rank, table_zero) for rank in kept],
        "opening": opening(results),
    }
    first = list(dict.fromkeys((*(pin["rank"] for pin in pinned), *(rank for rank in named if rank in kept), *kept)))
    give_back_grown()
    more = {
        "links": links(operations, kept, results),
        "path": path_line(results, kept, clock),
        "host": host_lanes(results, first, clock),
        "counters": counter_lanes(results, first, clock),
    }
    later = {name: (_packed(about), packed(content)) for name, (about, content) in more.items()}
    ran = results["ranks"].table.query("operations > 0")["rank"] if "ranks" in results else counts.index
    left_out = sorted(set(map(int, ran)) - set(kept))
    content = packed(b"".join(map(varints, columns)))
    return TimelineData(_packed(meta), content, later, len(table), kept, left_out, clock)


def _packed(meta: Any) -> str:
    return packed(json.dumps(meta, separators=(",", ":")).encode())


def _kept(counts: pd.Series, results: Results, named: Sequence[int]) -> list[int]:
    """Ranks whose operations are carried: all, or as many as fit, named ones first, then those unlike the others."""
    if counts.sum() <= MOST_OPERATIONS:
        return [int(rank) for rank in counts.index]
    operations = {int(rank): int(count) for rank, count in counts.items()}
    table = results["headline"].table.set_index("rank").reindex(list(operations))
    lost = (table["idle_ns"] + table["exposed_comm_ns"]).fillna(0).astype("int64").to_dict()
    order = [rank for rank in dict.fromkeys((*named, *most_unlike_first(lost))) if rank in operations]
    return sorted(fitting(order, operations, MOST_OPERATIONS))


def _names(table: pd.DataFrame) -> tuple[list[list[Any]], np.ndarray]:
    """Distinct (short name, full name, kind) and each row's place among them."""
    kinds = table["kind"].cat.codes.to_numpy().astype(np.int64)
    pair = table["name"].cat.codes.to_numpy().astype(np.int64) * 4 + kinds
    distinct, ids = np.unique(pair, return_inverse=True)
    full = table["name"].cat.categories
    kind_names = table["kind"].cat.categories
    entries = [(str(full[code // 4]), str(kind_names[code % 4])) for code in distinct.tolist()]
    return [[short_name(name), name, kind] for name, kind in entries], ids


def _with_origins(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str], list[str]]:
    """The table with each row's operator (`origin`) and path (`around`), 0 for none, else one more than its text's."""
    operators, shapes = table["operator"].cat, table["shapes"].cat
    pair = operators.codes.astype(np.int64) * (len(shapes.categories) + 1) + shapes.codes + 1
    codes, pairs = pd.factorize(pair.where(operators.codes >= 0))  # -1 where there is no operator
    texts = [divmod(int(pair), len(shapes.categories) + 1) for pair in pairs]
    labels = [
        _called(operators.categories[name], shapes.categories[shape - 1] if shape else "") for name, shape in texts
    ]
    path = table["path"].cat
    around, used = pd.factorize(path.codes.where(path.codes >= 0))
    paths = [str(path.categories[int(code)]) for code in used]
    inside = [" › ".join(short_name(part) for part in whole.split("/")) for whole in paths]
    return table.assign(origin=codes + 1, around=around + 1), labels, inside


def _called(operator: str, shapes: str) -> str:
    text = f"{operator} {shapes}".strip()
    return text if len(text) <= LAYOUT.operator_text else f"{text[: LAYOUT.operator_text - 1]}…"


def _calls(results: Results) -> tuple[dict[int, pd.DataFrame], list[str], list[str]]:
    """By rank its calls: label, bytes, wait and why there is none; and what each label and reason says."""
    frame = _frame(results, "calls")
    if frame.empty:
        return {}, [], []
    text = frame["collective"].map(collective_words, na_action="ignore").astype("str")
    frame = frame.assign(dtype=frame["dtype"].astype("str").map(element_types, na_action="ignore"))
    if "groups" in results:
        frame = frame.assign(group=group_labels(results["groups"], frame))
    for column in ("dtype", "group", "peers"):
        text += (", " + frame[column].astype("str")).where(frame[column].notna(), "")
    label, labels = pd.factorize(text)
    length_ns = frame["end_ns"] - frame["start_ns"]
    frame = frame[["rank", "call", "size_bytes"]].assign(label=label, length_ns=length_ns)
    if "call_waits" in results:
        waits = results["call_waits"].to_frame()[["rank", "call", "wait_ns", "why_not_split"]]
        frame = frame.merge(waits, on=["rank", "call"], how="left")
    else:
        frame = frame.assign(wait_ns=pd.NA, why_not_split=pd.NA)
    reasons, whys = pd.factorize(frame["why_not_split"])
    why = pd.Series(reasons, frame.index, dtype="Int64").mask(reasons < 0)
    frame = frame.assign(wait_ns=frame["wait_ns"].astype("Int64").clip(upper=frame["length_ns"]), why=why)
    return _by_call(frame), [str(label) for label in labels], [str(why) for why in whys]


def _bands(results: Results, clock: Clock, ranks: list[int]) -> list[list[Any]]:
    """[rank, step, start, end, complete] of each step's GPU window."""
    frame = _frame(results, "steps", ranks)
    return [
        [rank, step, clock.place(rank, start), clock.place(rank, start) + length, bool(complete)]
        for rank, step, start, length, complete in _rows(frame, "step", "start_ns", "window_ns", "is_complete")
        if is_known(start)
    ]


def _ranges(results: Results, clock: Clock, ranks: list[int]) -> list[list[Any]]:
    """[rank, name, start, end, depth] of each of the user's ranges on the GPU."""
    rows = _rows(_frame(results, "gpu_ranges", ranks), "name", "start_ns", "end_ns", "depth")
    return [
        [rank, name.strip("# "), clock.place(rank, start), clock.place(rank, end), depth]
        for rank, name, start, end, depth in rows
    ]


def _rows(frame: pd.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """The rank and these columns of each row, as plain values."""
    return zip(*(frame[name].tolist() for name in ("rank", *names)), strict=True) if len(frame) else iter(())


def _gaps(gaps: GapTable | None) -> tuple[dict[int, pd.DataFrame], list[str], list[str]]:
    """By rank its gaps with the numbers of their cause and of what the host did, and what those say."""
    if gaps is None or not len(gaps):
        return {}, [], []
    frame = gaps.to_frame()
    cause, causes = pd.factorize(frame["cause"].astype("str"))
    doing, names = pd.factorize(frame["doing"])  # -1 where it is absent
    short, doings = pd.factorize(np.array([short_name(name) for name in names], dtype=object))
    numbered = frame[["rank", "start_ns", "length_ns"]].assign(cause=cause, doing=np.append(short, -1)[doing] + 1)
    return {int(rank): own for rank, own in numbered.groupby("rank")}, list(map(str, causes)), list(map(str, doings))


def _gap_columns(gaps: pd.DataFrame | None, clock: Clock, rank: int) -> tuple[dict[str, int], list[np.ndarray]]:
    if gaps is None:
        return {"gaps": 0, "first_gap": 0}, []
    gaps = gaps.sort_values("start_ns")
    starts = gaps["start_ns"].to_numpy(dtype=np.int64)
    columns = [steps_of(starts), *(gaps[name].to_numpy(dtype=np.int64) for name in ("length_ns", "cause", "doing"))]
    entry = {"gaps": len(gaps), "first_gap": clock.place(rank, int(starts[0]))}
    return entry, columns
