"""Our figures beside HolisticTraceAnalysis', each difference taken apart by what makes it.

Its figure is brought to ours in steps: what it counts and we do not is taken out, what it leaves out is put in, its
times and its kinds are replaced by ours. What a step changes is that reason's part of the difference, so the parts add
up to it.
"""

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from traceanalyzer.analyses import run
from traceanalyzer.analyses.names import BreakdownColumn
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals
from traceanalyzer.export.hta import hta_trace, required
from traceanalyzer.model import RankTrace, TraceSet

Figure = BreakdownColumn | Literal["non_compute_ns"]

FIGURES: Mapping[Figure, str] = {
    "window_ns": "First start to last end; its kernel_time.",
    "compute_ns": "Time in which a compute kernel runs; its compute_time.",
    "non_compute_ns": "Time in which something but no compute runs: exposed communication and copies.",
    "idle_ns": "Time in which nothing runs; its idle_time.",
    "overlap_pct": "Share of communication that compute hides; its comp_comm_overlap.",
}

REASONS = (
    "lengths below zero of operations under 1 µs; percentages to two digits",
    "cuda_sync records count as work",
    "annotations count as work",
    "the last step is left out",
    "operations that no step launched are left out",
    "times are rounded to whole microseconds",
    "kinds of kernels",
)
"""In the order in which they are taken out of its figure."""

_SYNC, _ANNOTATION = "cuda_sync", "gpu_user_annotation"


def crosscheck(traces: TraceSet, files: Mapping[int, Path] | None = None) -> pd.DataFrame:
    """A row for each rank and figure: `ours`, `hta`, `difference`, a column for each of REASONS, and `unexplained`.

    Figures are of the whole capture.

    Args:
        traces: of any format, over their whole capture.
        files: by rank the PyTorch profiler's files, which its own reader then reads; without them the traces come to
            it by `to_hta`, so that only its analyses are checked.

    Raises:
        UsageError: HolisticTraceAnalysis is not installed.
    """
    hta = required()
    with _silent():
        whole, without_last, with_last = (_read(traces, hta, files, keep_last=keep) for keep in (None, False, True))
        printed = _printed(hta, without_last)
    ours = run(traces.ranks, ("breakdown",))["breakdown"].to_frame().set_index("rank")
    rows: list[dict[str, Any]] = []
    for trace in traces:
        known = [_operations(one, trace.rank, hta) for one in (without_last, with_last, whole)]
        rows += _rows(trace, *known, printed=printed.loc[trace.rank], ours=ours.loc[trace.rank], hta=hta)
    return pd.DataFrame(rows)


def _rows(
    trace: RankTrace, counted: pd.DataFrame, with_last: pd.DataFrame, whole: pd.DataFrame,
    *, printed: pd.Series, ours: pd.Series, hta: Any,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A row for each figure; the variants lead from its operations to ours."""
    exact = _ours(trace, hta)
    variants = [
        counted,
        counted[counted["cat"] != _SYNC],
        _only_work(counted),
        _only_work(with_last),
        _only_work(whole),
        exact,
        exact.assign(type=trace.gpu_ops["kind"].astype(str).to_numpy()),
    ]
    values = [_figures(one) for one in variants]
    for name in FIGURES:
        steps = [printed[name], *(value[name] for value in values)]
        parts = dict(zip(REASONS, -np.diff(steps), strict=True))
        own = _own(ours, name)
        yield {
            "rank": trace.rank,
            "figure": name,
            "ours": own,
            "hta": printed[name],
            "difference": printed[name] - own,
            **parts,
            "unexplained": values[-1][name] - own,
        }


def _own(ours: pd.Series, name: str) -> float:
    if name == "non_compute_ns":
        return float(ours["exposed_comm_ns"] + ours["exposed_copy_ns"])
    return float("nan") if pd.isna(ours[name]) else float(ours[name])


def _read(traces: TraceSet, hta: Any, files: Mapping[int, Path] | None, *, keep_last: bool | None) -> Any:
    """Its Trace: whole (`None`), or filtered as it does."""
    if files:
        made = hta.common.trace.Trace({rank: str(path.resolve()) for rank, path in files.items()}, "")
        made.parse_traces(use_multiprocessing=False)
    else:
        made = hta_trace(traces)
    if keep_last is not None:
        made.align_and_filter_trace(keep_last)
    return made


def _printed(hta: Any, trace: Any) -> pd.DataFrame:
    """What its own analyses say, in our units."""
    analysis = hta.trace_analysis.TraceAnalysis.__new__(hta.trace_analysis.TraceAnalysis)
    analysis.t = trace
    time = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")
    printed: dict[Figure, pd.Series] = {
        "window_ns": 1e3 * time["kernel_time(us)"],
        "compute_ns": 1e3 * time["compute_time(us)"],
        "non_compute_ns": 1e3 * time["non_compute_time(us)"],
        "idle_ns": 1e3 * time["idle_time(us)"],
        "overlap_pct": overlap["comp_comm_overlap_pctg"],
    }
    return pd.DataFrame(printed).astype(float)


_TYPES = {"COMPUTATION": "compute", "COMMUNICATION": "comm", "MEMORY": "copy"}


def _operations(trace: Any, rank: int, hta: Any) -> pd.DataFrame:
    """What it takes for work on the GPU: start, end, category, type."""
    frame = trace.traces[rank]
    frame = frame[frame["stream"] != -1]
    symbols = trace.symbol_table.get_sym_table()
    names = [symbols[place] for place in frame["name"]]
    return pd.DataFrame(
        {
            "start": (1e3 * frame["ts"]).round().astype("int64").to_numpy(),
            "end": (1e3 * (frame["ts"] + frame["dur"])).round().astype("int64").to_numpy(),
            "cat": [symbols[place] for place in frame["cat"]],
            "type": _types(names, hta),
        }
    )


def _ours(trace: RankTrace, hta: Any) -> pd.DataFrame:
    ops = trace.gpu_ops
    return pd.DataFrame(
        {
            "start": ops["start_ns"].to_numpy(),
            "end": ops["end_ns"].to_numpy(),
            "type": _types(ops["name"].astype(str).tolist(), hta),
        }
    )


def _types(names: list[str], hta: Any) -> list[str]:
    kinds = {name: _TYPES.get(hta.utils.utils.get_kernel_type(name), "other") for name in set(names)}
    return [kinds[name] for name in names]


def _only_work(operations: pd.DataFrame) -> pd.DataFrame:
    return operations[operations["cat"].isin(("kernel", "gpu_memcpy", "gpu_memset"))]


def _figures(operations: pd.DataFrame) -> dict[Figure, float]:
    """The figures of some operations, by our arithmetic."""
    if operations.empty:
        return dict.fromkeys(FIGURES, float("nan"))
    sets = {kind: _union(own) for kind, own in operations.groupby("type")}
    compute, comm = sets.get("compute", EMPTY), sets.get("comm", EMPTY)
    busy = _union(operations)
    window = int(operations["end"].max() - operations["start"].min())
    hidden = comm.total_ns - (comm - compute).total_ns
    return {
        "window_ns": window,
        "compute_ns": compute.total_ns,
        "non_compute_ns": busy.total_ns - compute.total_ns,
        "idle_ns": window - busy.total_ns,
        "overlap_pct": 100 * hidden / comm.total_ns if comm.total_ns else float("nan"),
    }


def _union(operations: pd.DataFrame) -> Intervals:
    return Intervals.of(operations["start"].to_numpy(), operations["end"].to_numpy())


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what it logs and prints."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
