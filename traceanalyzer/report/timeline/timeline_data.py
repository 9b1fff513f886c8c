"""The timeline's operations as bytes for a page: columns of differences, deflated, in base64.

A column is a run of unsigned LEB128 numbers. For each rank come, in this order: start after the previous start,
duration, name, stream, step, launch delay, launch call, operator and what is around it (0: not known, else one
more); then for its communication operations call label and bytes (0: not known), wait (0: not known, else one more)
and why there is no wait (0: there is, or it is not known); then bytes of its copies; then of its gaps start after the
previous start, length, cause and what the host did (0: not known).
The ranks lie one after the other.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.communication.common_clock import Clock, common_clock
from traceanalyzer.analyses.communication.groups import labels as group_labels
from traceanalyzer.analyses.host.gaps import GapTable
from traceanalyzer.analyses.timeline.thinning import fitting, most_unlike_first
from traceanalyzer.analyses.timeline.timeline import MOST_OPERATIONS
from traceanalyzer.files.unnamed import give_back_grown
from traceanalyzer.findings import Finding, named_ranks
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.model.tables import array_of, picked
from traceanalyzer.report.assets import packed
from traceanalyzer.report.timeline.columns import steps_of, varints
from traceanalyzer.report.timeline.counter_lanes import counter_lanes
from traceanalyzer.report.timeline.first_look import FEW_RANKS, opening, pins, rank_groups
from traceanalyzer.report.timeline.host_lanes import host_lanes
from traceanalyzer.report.timeline.links import links
from traceanalyzer.report.timeline.operation_columns import Operations
from traceanalyzer.report.timeline.path_line import path_line
from traceanalyzer.report.words.parts import Split, unsplit_calls, unsplit_part

MOST_OF_SHAPES = 240
"""Characters of an operator with its shapes: optimizers have hundreds of them."""


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
        table = picked(table, np.isin(array_of(table, "rank"), kept))
    pinned = pins(findings, split, kept, results)
    names, name_ids = _names(table)
    table, operators, paths = _with_origins(table)
    calls, labels, whys = _calls(results)
    gaps, causes, doings = _gaps(results.get("gaps"))
    give_back_grown()
    entries, columns = _of_ranks(Operations.of(table, name_ids, calls), gaps, clock, kept)
    meta = {
        "zero": str(clock.zero_ns),
        "names": names,
        "calls": labels,
        "whys": whys,
        "unsplit": unsplit_part(unsplit_calls(results)).label,
        "launches": [str(name) for name in table["launch"].cat.categories],
        "operators": operators,
        "paths": paths,
        "causes": causes,
        "knows_causes": "gaps" in results,
        "doings": doings,
        "ranks": entries,
        "steps": _bands(results.get("steps"), clock, kept),
        "bands": _ranges(results.get("gpu_ranges"), clock, kept),
        "pins": pinned,
        "groups": rank_groups(results, kept),
        "few": FEW_RANKS,
        "shifts": [clock.place(rank, table_zero) for rank in kept],
        "opening": opening(results, clock, kept),
    }
    first = list(dict.fromkeys((*(pin["rank"] for pin in pinned), *(rank for rank in named if rank in kept), *kept)))
    give_back_grown()
    more = _read_later(results, table, kept, first, clock)
    ran = results["ranks"].table.query("operations > 0")["rank"] if "ranks" in results else counts.index
    left_out = sorted(set(map(int, ran)) - set(kept))
    return TimelineData(_packed(meta), packed(columns), more, len(table), kept, left_out, clock)


def _read_later(
    results: Results, table: pd.DataFrame, kept: list[int], first: list[int], clock: Clock
) -> dict[str, tuple[str, str]]:
    """What is read after the first picture; `first` are the ranks in the order in which their lanes are kept."""
    more = {
        "links": links(table, kept, results),
        "path": path_line(results, kept, clock),
        "host": host_lanes(results, first, clock),
        "counters": counter_lanes(results, first, clock),
    }
    return {name: (_packed(about), packed(content)) for name, (about, content) in more.items()}


def _of_ranks(
    operations: Operations, gaps: Mapping[int, pd.DataFrame], clock: Clock, ranks: list[int]
) -> tuple[list[dict[str, Any]], bytes]:
    """What is said of each rank, and all ranks' columns: operations, then gaps."""
    entries, columns = [], []
    for rank in ranks:
        entry, made = operations.of_rank(rank, clock)
        first, idle = _gap_columns(gaps.get(rank), clock, rank)
        entries.append(entry | first)
        columns += [*made, *idle]
    return entries, b"".join(columns)


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
    said = [_called(operators.categories[name], shapes.categories[shape - 1] if shape else "") for name, shape in texts]
    path = table["path"].cat
    around, used = pd.factorize(path.codes.where(path.codes >= 0))
    paths = [str(path.categories[int(code)]) for code in used]
    inside = [" › ".join(short_name(part) for part in whole.split("/")) for whole in paths]
    return table.assign(origin=codes + 1, around=around + 1), said, inside


def _called(operator: str, shapes: str) -> str:
    text = f"{operator} {shapes}".strip()
    return text if len(text) <= MOST_OF_SHAPES else f"{text[: MOST_OF_SHAPES - 1]}…"


def _calls(results: Results) -> tuple[pd.DataFrame | None, list[str], list[str]]:
    """By rank and call: label, bytes, wait and why there is none; and what each label and reason says."""
    frame = results["calls"].to_frame() if "calls" in results else pd.DataFrame()
    if frame.empty:
        return None, [], []
    text = frame["collective"].map(collective_words, na_action="ignore").astype("str")
    frame = frame.assign(dtype=frame["dtype"].astype("str").map(element_types, na_action="ignore"))
    if "groups" in results:
        frame = frame.assign(group=group_labels(results["groups"], frame))
    for column in ("dtype", "group", "peers"):
        text += (", " + frame[column].astype("str")).where(frame[column].notna(), "")
    codes, labels = pd.factorize(text)
    frame = frame[["rank", "call", "size_bytes"]].assign(label=codes)
    if "call_waits" in results:
        waits = results["call_waits"].to_frame()[["rank", "call", "wait_ns", "why_not_split"]]
        frame = frame.merge(waits, on=["rank", "call"], how="left")
    else:
        frame = frame.assign(wait_ns=pd.NA, why_not_split=pd.NA)
    reasons, whys = pd.factorize(frame["why_not_split"])
    frame = frame.assign(wait_ns=frame["wait_ns"].astype("Int64"), why=pd.array(reasons, "Int64"))
    frame["why"] = frame["why"].where(reasons >= 0)
    return frame.set_index(["rank", "call"]), [str(label) for label in labels], [str(why) for why in whys]


def _bands(steps: Result | None, clock: Clock, ranks: list[int]) -> list[list[Any]]:
    """[rank, step, start, end, complete] of each step's GPU window."""
    if steps is None or not len(steps):
        return []
    frame = steps.to_frame()
    frame = frame[frame["start_ns"].notna() & frame["rank"].isin(ranks)]
    return [
        [rank, step, clock.place(rank, start), clock.place(rank, start) + length, bool(complete)]
        for rank, step, start, length, complete in zip(
            *(frame[name].tolist() for name in ("rank", "step", "start_ns", "window_ns", "is_complete")), strict=True
        )
    ]


def _ranges(ranges: Result | None, clock: Clock, ranks: list[int]) -> list[list[Any]]:
    """[rank, name, start, end, depth] of each of the user's ranges on the GPU."""
    if ranges is None or not len(ranges):
        return []
    frame = ranges.to_frame()
    frame = frame[frame["rank"].isin(ranks)]
    return [
        [rank, name.strip("# "), clock.place(rank, start), clock.place(rank, end), depth]
        for rank, name, start, end, depth in zip(
            *(frame[name].tolist() for name in ("rank", "name", "start_ns", "end_ns", "depth")), strict=True
        )
    ]


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


def _gap_columns(gaps: pd.DataFrame | None, clock: Clock, rank: int) -> tuple[dict[str, int], list[bytes]]:
    if gaps is None:
        return {"gaps": 0, "first_gap": 0}, []
    gaps = gaps.sort_values("start_ns")
    starts = gaps["start_ns"].to_numpy(dtype=np.int64)
    columns = (steps_of(starts), gaps["length_ns"], gaps["cause"], gaps["doing"])
    entry = {"gaps": len(gaps), "first_gap": clock.place(rank, int(starts[0]))}
    return entry, [varints(np.asarray(column, dtype=np.int64)) for column in columns]
