"""The data of a page's timeline."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import ANALYSES, Results
from traceanalyzer.analyses.communication.clocks import Clock, common_clock
from traceanalyzer.analyses.communication.groups import labels as group_labels
from traceanalyzer.analyses.grouping import row_blocks
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import API_CALL, FRAME, OPERATOR, RANGE
from traceanalyzer.analyses.memory import COLUMN
from traceanalyzer.analyses.timeline import (
    LEVELS,
    MOST_OPERATIONS,
    MOST_RANKS,
    described_calls,
    fitting,
    most_unlike_first,
    on_own_clocks,
)
from traceanalyzer.files.bounds import give_back_grown
from traceanalyzer.findings import Finding, named_ranks
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import is_known
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.vocabulary import BETWEEN_KERNELS, IDLE, IDLE_CAUSES, KINDS, UNMATCHED, WAIT, numbered
from traceanalyzer.model.tables import pairs_of
from traceanalyzer.report.assets import packed
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.words import Split, headline_steps

# Tables as a page carries them: columns of whole numbers, and of texts' places in lists. A number that may be absent is
# 0 where it is, else one more.


class Tables:
    """Columns of numbers as bytes: unsigned LEB128, each table's columns behind those of the one before."""

    def __init__(self) -> None:
        self._columns: list[bytes] = []

    def add(self, table: pd.DataFrame) -> dict[str, Any]:
        """What the page's script reads the table by: `count`, and of each column whether it needs more than 32 bits.

        Times of the column `start` are kept as differences, which may be negative: 0, -1, 1, -2 as 0, 1, 2, 3.
        """
        is_wide = {}
        for name, column in table.items():
            values = column.to_numpy(dtype=np.int64)
            if name == "start":
                steps = np.diff(values, prepend=0)
                values = np.where(steps < 0, -2 * steps - 1, 2 * steps)
            is_wide[str(name)] = name == "start" or int(values.max(initial=0)) >= 1 << 32
            self._columns.append(varints(values))
        return {"count": len(table), "columns": is_wide}

    def content(self) -> bytes:
        """All of them."""
        return b"".join(self._columns)


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


def _or_zero(values: pd.Series) -> pd.Series:
    """One more than each value, 0 where it is absent."""
    return (values.astype("Int64") + 1).fillna(0)


def _listed(values: Any, told: Callable[[Any], Any] = str) -> tuple[np.ndarray, list[Any]]:
    """Each value's place in a list, and the list of their labels, empty for an absent one."""
    places, distinct = pd.factorize(values, use_na_sentinel=False)
    return places, [told(value) if is_known(value) else "" for value in distinct]


def _pairs(first: pd.Series, second: pd.Series, told: Callable[[str, Any], Any]) -> tuple[np.ndarray, list[Any]]:
    """The same of two columns of categories; empty where the first is absent."""
    pairs, places = pairs_of(first.array, second.array)
    return places, ["" if one is None else told(one, other) for one, other in pairs]


def _frame(results: Results, name: str) -> pd.DataFrame:
    """A Result's table; one without rows where it is not there."""
    result = results[name] if name in results else ANALYSES[name].result.without_rows()
    return result.to_frame()


def _drawn_ranks(frame: pd.DataFrame, order: Sequence[int]) -> list[int]:
    """The first ranks of `order` that have rows, as many as are drawn."""
    known = set(frame["rank"].unique())
    return [rank for rank in order if rank in known][:MOST_RANKS]


# Counters below a rank's lanes: the launch queue, memory, the GPU's own counters.


QUEUE = "launch queue"

ALLOCATED = LEVELS["memory_allocated_bytes"]


def _counters(results: Results, order: Sequence[int], clock: Clock, tables: Tables) -> list[dict[str, Any]]:
    """What each counter is, of the first ranks of `order`.

    A value is in thousandths of the largest; of memory by category there is a column for each category in use.
    """
    entries = []
    for rank in order[:MOST_RANKS]:
        for about, own in _of_rank(results, rank):
            times = {"start": [clock.place(rank, time) for time in own["start_ns"]], "length": own["length_ns"]}
            values = own.drop(columns=["start_ns", "length_ns"])
            entries.append({"rank": rank, **about, "table": tables.add(pd.DataFrame(times).join(values))})
    return entries


def _of_rank(results: Results, rank: int) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Each counter's name, unit and what else the page says of it; `start_ns`, `length_ns` and values."""
    found = [
        (QUEUE, "", stretches.assign(value=stretches["mean_depth"].astype("Float64").fillna(0)))
        for stretches in [_rows_of(results, "gpu_utilization", rank)]
        if stretches["mean_depth"].notna().any()
    ]
    for name, own in _rows_of(results, "counter_series", rank).groupby("counter", sort=False):
        found.append((str(name), _unit(str(name), str(own["source"].iloc[0])), own))
    memory = _rows_of(results, "memory_levels", rank)
    is_stacked = len(memory) > 0 and memory["allocated_bytes"].max() > 0
    for name, unit, own in found:
        most = float(own["value"].max())
        if most > 0 and not (is_stacked and name == ALLOCATED):
            shares = np.rint(1000 * own["value"].to_numpy(dtype=np.float64) / most)
            yield {"name": name, "unit": unit, "most": most}, own[["start_ns", "length_ns"]].assign(value=shares)
    if is_stacked:
        held = {name: memory[column].clip(lower=0) for name, column in COLUMN.items() if memory[column].max() > 0}
        lengths = memory["time_ns"].shift(-1, fill_value=memory["time_ns"].iloc[-1] + 1) - memory["time_ns"]
        about = {"name": ALLOCATED, "unit": "B", "parts": [*held], "peak": int(memory["is_peak"].argmax())}
        yield about, pd.DataFrame({"start_ns": memory["time_ns"], "length_ns": lengths, **held})


def _rows_of(results: Results, name: str, rank: int) -> pd.DataFrame:
    frame = _frame(results, name)
    return frame[frame["rank"] == rank].reset_index(drop=True)


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
    known = _frame(results, "ranks").set_index("rank")["host"].reindex(kept)
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


UNIT_NS = 100
"""Of these events' times: a page with finer ones would be a quarter larger."""

HOST_LANES_KINDS = {RANGE: "range", OPERATOR: "operator", API_CALL: "call", FRAME: "frame"}
"""What events are called in the page; calls that synchronise are `sync`."""


def _host_lanes(results: Results, order: Sequence[int], clock: Clock, tables: Tables) -> dict[str, Any]:
    """Names and lanes of the first `MOST_RANKS` ranks of `order`; a lane is a thread's frames, or its other events."""
    frame = _frame(results, "host_events")
    ranks = _drawn_ranks(frame, order)
    frame = frame[frame["rank"].isin(ranks)]
    if frame.empty:
        return {"names": [], "lanes": [], "unit": UNIT_NS, "note": ""}
    recorded = int(frame.groupby("rank")["recorded"].first().sum())
    frame = frame.assign(ns=frame["end_ns"] - frame["start_ns"], is_frame=frame["what"] == FRAME)
    drawn = frame.loc[np.sort(frame["ns"].nlargest(LAYOUT.cpu_events, keep="first").index)]
    places, names = _pairs(drawn["name"].astype("category"), drawn["what"].astype("category"), _host_name)
    start, end = (clock.places(drawn, name) // UNIT_NS for name in ("start_ns", "end_ns"))
    drawn = drawn.assign(start=start, length=end - start, said=places)
    lanes = [
        {
            "rank": int(rank),
            "thread": int(thread),
            "role": own["role"].iloc[0],
            "frames": bool(is_frame),
            "table": tables.add(_lane(own.sort_values(["start_ns", "depth"], kind="stable"))),
        }
        for (rank, thread, is_frame), own in drawn.groupby(["rank", "thread", "is_frame"], sort=False)
    ]
    said = note(len(drawn), recorded, drawn["ns"].min(), ranks, len(order))
    return {"names": names, "lanes": lanes, "unit": UNIT_NS, "note": said}


def _host_name(name: str, what: str) -> list[str]:
    is_sync = what == API_CALL and host_names.is_sync(name)
    return ["sync" if is_sync else HOST_LANES_KINDS[what], short_name(name)]


def _lane(own: pd.DataFrame) -> pd.DataFrame:
    """A lane's columns; levels that no event of it is drawn in are closed up."""
    depth = own["depth"].rank(method="dense") - 1
    return own[["start", "length"]].assign(name=own["said"], depth=depth)


def note(drawn: int, recorded: int, least_ns: int, ranks: Sequence[int], of_ranks: int) -> str:
    """What is not drawn."""
    sentences = []
    if drawn < recorded:
        least = max(1, round(least_ns / 1000))
        sentences.append(f"The {drawn:,} longest of {recorded:,} CPU events are drawn: all above {least} µs.")
    if len(ranks) < of_ranks:
        sentences.append(f"CPU threads are drawn for {numbered('rank', ranks)}.")
    return " ".join(sentences)


# The critical path as a line through the timeline's lanes: stretches that follow each other in one lane of one rank are
# one.


LANES = ("host", *(kind.key for kind in KINDS), IDLE.kind)
"""Where the line runs: on the host, in a lane of operations, or on a GPU on which nothing runs."""


def _path_line(results: Results, kept: list[int], clock: Clock, tables: Tables) -> dict[str, Any]:
    """What the line says; without a path only why there is none."""
    stretches = _frame(results, "path_stretches")
    if stretches.empty:
        return {"lanes": LANES, "why_not": _why_not(results), "table": tables.add(pd.DataFrame())}
    drawn = _drawn(_merged(on_own_clocks(stretches, _frame(results, "clocks"))))
    place = drawn["rank"].map({rank: at + 1 for at, rank in enumerate(kept)}).fillna(0)
    line = {"start": clock.places(drawn, "start_ns"), "length": drawn["ns"], "rank": place, "lane": drawn["lane"]}
    return {"lanes": LANES, "shares": _shares(results), "why_not": "", "table": tables.add(pd.DataFrame(line))}


def _why_not(results: Results) -> str:
    replay = results.get("replay")
    if replay is None:
        return "the job was not replayed"
    return replay.why_not or "the capture has no complete step to follow"


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


# All of it: what the page's script reads.


@dataclass(frozen=True, slots=True)
class TimelineData:
    """What the page's script reads.

    Attributes:
        meta: lists of texts, ranks, steps, bands, and by what each table is read; JSON, deflated, base64.
        numbers: the tables' columns: of each rank its operations and gaps, then the path, CPU threads, counters;
            deflated, base64.
        count: operations in them.
        ranks: ranks in them.
        left_out: ranks that are not.
        clock: how the ranks lie beside each other.
    """

    meta: str
    numbers: str
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
        table = table[table["rank"].isin(kept)].reset_index(drop=True)
    pinned = pins(findings, split, kept, results)
    operations, lists = _operations(table, results, clock)
    gaps, of_gaps = _gaps(results, clock)
    give_back_grown()
    tables = Tables()
    drawn = {"operations": operations, "gaps": gaps}
    of_ranks = {name: dict(list(own.groupby("rank"))) for name, own in drawn.items()}
    ranks = [
        {"rank": rank}
        | {name: tables.add(of_ranks[name].get(rank, own[:0]).drop(columns="rank")) for name, own in drawn.items()}
        for rank in kept
    ]
    give_back_grown()
    steps, ranges = _frame(results, "steps"), _frame(results, "gpu_ranges")
    steps = steps.assign(end_ns=steps["start_ns"] + steps["window_ns"])
    first = list(dict.fromkeys((*(pin["rank"] for pin in pinned), *(rank for rank in named if rank in kept), *kept)))
    meta = {
        "zero": str(clock.zero_ns),
        **lists,
        **of_gaps,
        "knows_causes": "gaps" in results,
        "ranks": ranks,
        "steps": _bands(steps, kept, clock, "step", "is_complete"),
        "bands": _bands(ranges.assign(name=ranges["name"].str.strip("# ")), kept, clock, "name", "depth"),
        "pins": pinned,
        "groups": rank_groups(results, kept),
        "few": LAYOUT.expanded_ranks,
        "shifts": [clock.place(rank, table_zero) for rank in kept],
        "opening": opening(results),
        "path": _path_line(results, kept, clock, tables),
        "host": _host_lanes(results, first, clock, tables),
        "counters": _counters(results, first, clock, tables),
    }
    ran = results["ranks"].table.query("operations > 0")["rank"] if "ranks" in results else counts.index
    left_out = sorted(set(map(int, ran)) - set(kept))
    said = packed(json.dumps(meta, separators=(",", ":")).encode())
    return TimelineData(said, packed(tables.content()), len(table), kept, left_out, clock)


def _kept(counts: pd.Series, results: Results, named: Sequence[int]) -> list[int]:
    """Ranks whose operations are carried: all, or as many as fit, named ones first, then those unlike the others."""
    if counts.sum() <= MOST_OPERATIONS:
        return [int(rank) for rank in counts.index]
    operations = {int(rank): int(count) for rank, count in counts.items()}
    table = results["headline"].table.set_index("rank").reindex(list(operations))
    lost = (table["idle_ns"] + table["exposed_comm_ns"]).fillna(0).astype("int64").to_dict()
    order = [rank for rank in dict.fromkeys((*named, *most_unlike_first(lost))) if rank in operations]
    return sorted(fitting(order, operations, MOST_OPERATIONS))


def _operations(table: pd.DataFrame, results: Results, clock: Clock) -> tuple[pd.DataFrame, dict[str, list[Any]]]:
    """Each operation's rank and columns, and the lists that their texts are in."""
    calls = table[["rank", "call"]].merge(_calls(results), on=["rank", "call"], how="left")
    lengths = table["end_ns"] - table["start_ns"]
    delay = (table["start_ns"] - table["launch_start_ns"]).astype("Int64")
    texts = {
        "name": ("names", _pairs(table["name"], table["kind"], lambda name, kind: [short_name(name), name, kind])),
        "stream": ("streams", _listed(table["stream"], int)),
        "launch": ("launches", _listed(table["launch"])),
        "thread": ("threads", _listed(table["launch_thread"], int)),
        "operator": ("operators", _pairs(table["operator"], table["shapes"], _called)),
        "path": ("paths", _listed(table["path"], lambda path: " › ".join(map(short_name, path.split("/"))))),
        "call": ("calls", _listed(calls["label"])),
        "why": ("whys", _listed(calls["why_not_split"])),
    }
    numbers = {
        "step": table["step"],
        "delay": delay.where(delay >= 0),
        "bytes": table["size_bytes"].astype("Int64").fillna(calls["size_bytes"]),
        "wait": calls["wait_ns"].astype("Int64").clip(upper=lengths),
        "instance": calls["instance"],
        "awaited": calls["waits_for"],
    }
    columns = {name: places for name, (_, (places, _)) in texts.items()}
    columns |= {name: _or_zero(own).to_numpy(dtype=np.int64) for name, own in numbers.items()}
    times = {"rank": table["rank"], "start": clock.places(table, "start_ns"), "length": lengths}
    return pd.DataFrame(times | columns), {name: listed for name, (_, listed) in texts.values()}


def _called(operator: str, shapes: str | None) -> str:
    text = f"{operator} {shapes or ''}".strip()
    return text if len(text) <= LAYOUT.operator_text else f"{text[: LAYOUT.operator_text - 1]}…"


def _calls(results: Results) -> pd.DataFrame:
    """All ranks' calls with what is known of their waits, and `label`: what the page says of each."""
    calls = described_calls(_frame(results, "calls"), _frame(results, "call_waits"))
    label = calls["collective"].map(collective_words, na_action="ignore").astype("str")
    group = group_labels(results["groups"], calls) if "groups" in results else calls["group"]
    dtype = calls["dtype"].astype("str").map(element_types, na_action="ignore")
    for further in (dtype, group, calls["peers"]):
        label += (", " + further.astype("str")).where(further.notna(), "")
    return calls.assign(label=label)


def _bands(table: pd.DataFrame, ranks: list[int], clock: Clock, name: str, last: str) -> list[list[Any]]:
    """[rank, name, start, end, last] of each row of these ranks that has a start."""
    own = table[table["rank"].isin(ranks) & table["start_ns"].notna()]
    own = own.assign(**{column: clock.places(own, column) for column in ("start_ns", "end_ns")})
    return own[["rank", name, "start_ns", "end_ns", last]].astype(object).to_numpy().tolist()


def _gaps(results: Results, clock: Clock) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """Each gap's rank and columns, and the lists of their causes and of what the host did."""
    gaps = _frame(results, "gaps").sort_values("start_ns", kind="stable")
    cause, causes = _listed(gaps["cause"])
    doing, doings = _listed(gaps["doing"], short_name)
    times = {"rank": gaps["rank"], "start": clock.places(gaps, "start_ns"), "length": gaps["length_ns"]}
    return pd.DataFrame({**times, "cause": cause, "doing": doing}), {"causes": causes, "doings": doings}
