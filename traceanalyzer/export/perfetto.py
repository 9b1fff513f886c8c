"""All ranks as one file for Perfetto: what was recorded, and beside it what the analysis makes of it.

A job is written rank by rank: each rank's events are read again, drawn beside its rows of the Results, and written to a
piece of their own, so that no more than one rank is in memory at a time in each process. The pieces make the file.
"""

import gzip
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, cast

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.communication.common_clock import Clock, common_clock
from traceanalyzer.analyses.names import CallsColumn, CallWaitsColumn
from traceanalyzer.export import pftrace, trace_events
from traceanalyzer.export.rows import path as path_slices
from traceanalyzer.export.tracks import ROWS, Track, of_rank
from traceanalyzer.files.whole import whole_file
from traceanalyzer.model import RankTrace

MADE_BY = "analyze-traces export"
"""What each file says near its beginning."""

NEEDED = ("ranks", "steps", "gpu_ranges", "gaps", "calls", "call_waits", "clocks", "path_stretches")
"""Results that an export is made from."""

Visit = Callable[[Callable[[RankTrace], None]], None]
"""Shows every rank to a visitor, in whatever process and order."""

HOUR_NS = 3_600 * 10**9

_TOLD: tuple[CallsColumn | CallWaitsColumn, ...] = (
    "collective",
    "group",
    "dtype",
    "size_bytes",
    "peers",
    "wait_ns",
    "waits_for",
    "instance",
    "why_not_split",
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What every rank's piece is made with."""

    folder: Path
    clock: Clock
    zero_ns: int
    is_json: bool
    devices: Mapping[int, str]
    clocks: Mapping[int, Mapping[str, object]]


def write(results: Results, path: Path, label: str, visit: Visit) -> int:
    """Write a run; returns how many bytes the file has.

    It is Chrome's JSON when the name ends in `.json` or `.json.gz`, else Perfetto's protobuf, compressed when the name
    ends in `.gz`.

    Args:
        results: at least those of NEEDED.
        path: the file; its folder is made, and it appears when it is whole.
        label: name of the run.
        visit: shows the run's ranks.

    Raises:
        UsageError: it cannot be written.
    """
    with whole_file(path) as draft:
        plan, said = _planned(results, draft.parent, label, is_json=".json" in path.suffixes)
        visit(partial(_write_rank, plan=plan))
        with _opened(draft) as file:
            _put_together(file, plan, said, results)
        return draft.stat().st_size


def in_memory(traces: Iterable[RankTrace]) -> Visit:
    """Ranks that are in memory, for `write`."""

    def visit(visitor: Callable[[RankTrace], None]) -> None:
        for trace in traces:
            visitor(trace)

    return visit


def _planned(results: Results, folder: Path, label: str, *, is_json: bool) -> tuple[_Plan, dict[str, object]]:
    """What the pieces are made with, each rank's rows in files beside them, and what there is to say of the whole."""
    clock = common_clock(cast("Results", {name: results[name] for name in ("ranks", "steps", "clocks")}))
    # Hosts may work before the first GPU operation; no viewer draws what is before 0.
    zero_ns = clock.zero_ns // HOUR_NS * HOUR_NS - HOUR_NS
    tables: dict[str, pd.DataFrame] = {name: results[name].to_frame() for name in ROWS if name != "calls"}
    tables["path_stretches"] = _own_clock(tables["path_stretches"], results["clocks"].to_frame())
    tables["calls"] = told_calls(results, clock)
    ranks = results["ranks"].to_frame()
    for name, table in tables.items():
        own = dict(list(table.groupby("rank")))
        for rank in ranks["rank"]:
            own.get(rank, table.iloc[:0]).reset_index(drop=True).to_pickle(folder / f"{rank}.{name}")
    devices = ranks.dropna(subset="device_name").set_index("rank")["device_name"].to_dict()
    plan = _Plan(folder, clock, zero_ns, is_json, devices, _of_clocks(results["clocks"].to_frame()))
    said: dict[str, object] = {
        "label": label,
        "zero_ns": str(zero_ns),
        "clocks": clock.note,
        "made_by": MADE_BY,
    }
    return plan, said


def told_calls(results: Results, clock: Clock) -> pd.DataFrame:
    """Communication calls of all ranks: what they are, what is known of their waits, and which rank begins before.

    `comes_after` and `comes_before`: another rank of the same instance begins it earlier, or later.
    """
    calls: pd.DataFrame = results["calls"].to_frame()
    waits: pd.DataFrame = results["call_waits"].to_frame()
    keys = ["rank", "call"]
    own = [name for name in _TOLD if name in calls]
    rest = [name for name in _TOLD if name not in own]
    table = calls[[*keys, "start_ns", *own]].merge(waits[keys + rest], on=keys, how="left")
    begins = table["start_ns"] - table["rank"].map(dict(clock.shifts)).fillna(0).astype("int64")
    order = table.assign(begins=begins).sort_values(["begins", "rank"], kind="stable").groupby("instance")
    place, held = order.cumcount().reindex(table.index), order["rank"].transform("size").reindex(table.index)
    table = table.drop(columns="start_ns")
    return table.assign(
        comes_after=(place > 0).fillna(value=False), comes_before=(place + 1 < held).fillna(value=False)
    )


def _own_clock(path: pd.DataFrame, clocks: pd.DataFrame) -> pd.DataFrame:
    """Stretches of the critical path as the ranks' own clocks have them."""
    offsets = path["rank"].map(clocks.set_index("rank")["offset_ns"]).fillna(0).astype("int64")
    return path.assign(start_ns=path["start_ns"] + offsets, end_ns=path["end_ns"] + offsets)


def _of_clocks(clocks: pd.DataFrame) -> dict[int, dict[str, object]]:
    told = clocks.set_index("rank")[["reference", "offset_ns", "uncertainty_ns", "is_significant"]]
    rows = told.astype(object).to_dict("index")
    return {
        int(rank): {f"clock_{name}": int(value) for name, value in row.items() if not pd.isna(value)}
        for rank, row in rows.items()
    }


def _write_rank(trace: RankTrace, plan: _Plan) -> None:
    tables = {name: pd.read_pickle(plan.folder / f"{trace.rank}.{name}") for name in ROWS}  # noqa: S301 - our own
    shift_ns = plan.clock.shift_ns(trace.rank)
    device = plan.devices.get(trace.rank)
    name = f"rank {trace.rank}" + (f" · {device}" if device else "")
    said = {"rank": trace.rank, "clock_shift_applied_ns": -shift_ns, **plan.clocks.get(trace.rank, {}),
            "window": trace.window.label}  # fmt: skip
    pieces = _encoder(plan)(trace.rank, name, said, of_rank(trace, tables), shift_ns + plan.zero_ns)
    with (plan.folder / f"{trace.rank}.piece").open("wb") as file:
        file.writelines(pieces)


def _encoder(plan: _Plan) -> Callable[..., Iterator[bytes]]:
    return trace_events.of_rank if plan.is_json else pftrace.of_rank


def _put_together(file: IO[bytes] | gzip.GzipFile, plan: _Plan, said: Mapping[str, object], results: Results) -> None:
    if plan.is_json:
        file.write(trace_events.head(said))
    else:
        file.writelines(pftrace.of_job(said, _of_job(results, plan.clock), plan.zero_ns))
    for rank in sorted(results["ranks"].to_frame()["rank"]):
        piece = plan.folder / f"{rank}.piece"
        if piece.exists():
            with piece.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)
            piece.unlink()
    if plan.is_json:
        file.write(trace_events.TAIL)


def _of_job(results: Results, clock: Clock) -> list[Track]:
    """The critical path through all ranks, on the clock that they are drawn on."""
    stretches = results["path_stretches"].to_frame()
    if stretches.empty:
        return []
    own = _own_clock(stretches, results["clocks"].to_frame())
    shift = own["rank"].map(dict(clock.shifts)).fillna(0).astype("int64")
    drawn = own.assign(start_ns=own["start_ns"] - shift, end_ns=own["end_ns"] - shift)
    told = [{"rank": int(rank), "where": where} for rank, where in zip(drawn["rank"], drawn["where"], strict=True)]
    slices = path_slices(drawn)
    named = [f"rank {rank}: {name}" for rank, name in zip(drawn["rank"], slices["name"], strict=True)]
    ordered = slices.assign(name=named, args=told).sort_values("start_ns", kind="stable")
    ends = ordered["end_ns"].clip(upper=ordered["start_ns"].shift(-1, fill_value=ordered["end_ns"].max()))
    return [Track("job", "critical path of the job", ordered.assign(end_ns=ends.astype("int64")))]


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(path, "wb", compresslevel=6) if path.suffix == ".gz" else path.open("wb")
