"""HolisticTraceAnalysis over the same traces, and our figures beside its."""

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import run
from traceanalyzer.analyses.intervals import EMPTY, Intervals
from traceanalyzer.errors import needs_extra
from traceanalyzer.functions import loaded
from traceanalyzer.model import RankTrace, TraceSet
from traceanalyzer.model.schema import NONE
from traceanalyzer.selection import step_at

# HolisticTraceAnalysis over traces that are in memory: its `TraceAnalysis`, filled from our tables.


_STEP = "ProfilerStep#"

_CATEGORIES = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
"""Its name for each of our activities."""

_VERSION = r"_v\d+$"
"""Nsight writes an API function's version behind its name."""


def to_hta(traces: TraceSet, *, include_last_profiler_step: bool = False) -> Any:
    """HolisticTraceAnalysis' `TraceAnalysis` of the traces, whatever profiler made them, without reading a file again.

    Times are its microseconds, exact to the nanosecond (its own reader rounds them to whole ones). Steps are those that
    we found, under its name for them (`ProfilerStep#n`), so that Nsight's captures have iterations too. Like its reader
    it leaves out what the last step launched, and operations that no step launched. Synchronisation records
    (`cuda_sync`) are not among them.

    Args:
        traces: of any format.
        include_last_profiler_step: keep the last step.

    Raises:
        UsageError: HolisticTraceAnalysis is not installed, or `traces` are not loaded.
    """
    hta = required()
    made = hta_trace(traces)
    made.align_and_filter_trace(include_last_profiler_step)
    for rank, frame in made.traces.items():
        made.traces[rank] = frame.set_index("index", drop=False).rename_axis(None)
    return _analysis(hta, made)


def _analysis(hta: Any, trace: Any) -> Any:
    """Its `TraceAnalysis` of its `Trace`; the constructor would read files."""
    analysis = hta.trace_analysis.TraceAnalysis.__new__(hta.trace_analysis.TraceAnalysis)
    analysis.t = trace
    return analysis


def required() -> Any:
    """The package `hta`.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import hta.common.trace  # noqa: PLC0415 - an extra
        import hta.trace_analysis  # noqa: PLC0415
    except ImportError as error:
        raise needs_extra("this needs HolisticTraceAnalysis", "hta") from error
    return hta


def hta_trace(traces: TraceSet) -> Any:
    """Its `Trace`, parsed, not yet filtered; the constructor would read files."""
    module = required().common.trace
    made = module.Trace.__new__(module.Trace)
    made.trace_path, made.trace_files, made.meta_data, made.min_ts = "", {}, {}, 0
    made.parser_config = module.ParserConfig.get_default_cfg()
    made.symbol_table = module.TraceSymbolTable()
    first = min((int(trace.api_calls["start_ns"].min()) for trace in loaded(traces) if len(trace.api_calls)), default=0)
    made.traces = {}
    for trace in traces:
        frame = _frame(trace, first)
        made.symbol_table.add_symbols([*frame["name"].unique(), *frame["cat"].unique()])
        ids = made.symbol_table.get_sym_id_map()
        made.traces[trace.rank] = frame.assign(name=frame["name"].map(ids), cat=frame["cat"].map(ids))
        made.meta_data[trace.rank] = {"distributedInfo": {"rank": trace.rank, "world_size": trace.meta.world_size}}
    made.is_parsed = True
    return made


def _frame(trace: RankTrace, first_ns: int) -> pd.DataFrame:
    """A row for each event, with the columns of its parser; names are texts still."""
    parts = [_gpu(trace), _calls(trace), _host(trace), _ranges(trace)]
    parts.append(_on_host(trace, "frames", "python_function"))
    frame = pd.concat(parts, ignore_index=True)
    starts, ends = (frame[name].to_numpy() - first_ns for name in ("start_ns", "end_ns"))
    frame = frame.assign(ts=starts / 1e3, dur=(ends - starts) / 1e3, end=ends / 1e3, index=np.arange(1, len(frame) + 1))
    defaults = {"stream": -1, "correlation": -1, "bytes": -1, "memory_bw_gbps": 0.0, "external_id": -1,
                "wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1, "iteration": -1,
                "input_dims": "-1", "input_type": "-1", "input_strides": "-1"}  # fmt: skip
    for name, value in defaults.items():
        frame[name] = frame[name].fillna(value) if name in frame else value
    whole = dict.fromkeys(("stream", "correlation", "bytes", "external_id", "iteration", "pid", "tid"), "int64")
    frame = frame.drop(columns=["start_ns", "end_ns"]).astype(whole)
    return frame.assign(index_correlation=_partners(trace, frame))


def _gpu(trace: RankTrace) -> pd.DataFrame:
    ops = trace.gpu_ops
    lengths = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    sizes = ops["bytes"].fillna(0).to_numpy(dtype=float)
    return pd.DataFrame(
        {
            "cat": ops["activity"].astype(str).map(_CATEGORIES).fillna("kernel"),
            "name": ops["name"].astype(str),
            "pid": trace.meta.device or 0,
            "tid": ops["stream"],
            "stream": ops["stream"],
            "correlation": ops["correlation"],
            "bytes": ops["bytes"],
            "memory_bw_gbps": np.divide(sizes, lengths, out=np.zeros(len(ops)), where=lengths > 0),
            "iteration": _numbered(trace, trace.op_step),
            "start_ns": ops["start_ns"],
            "end_ns": ops["end_ns"],
        }
    )


def _calls(trace: RankTrace) -> pd.DataFrame:
    names = trace.api_calls["name"].astype(str).str.replace(_VERSION, "", regex=True)
    return _on_host(trace, "api_calls", "cuda_runtime").assign(
        name=names, correlation=trace.api_calls["correlation"].to_numpy()
    )


def _host(trace: RankTrace) -> pd.DataFrame:
    ops = trace.host_ops
    known = {"input_dims": "shapes", "input_type": "dtypes", "input_strides": "strides"}
    texts = {name: ops[own].astype("string").to_numpy() for name, own in known.items()}
    return _on_host(trace, "host_ops", "cpu_op").assign(external_id=ops["external_id"].to_numpy(), **texts)


def _ranges(trace: RankTrace) -> pd.DataFrame:
    """The user's ranges; those that mark steps under its name for a step."""
    ranges, steps = _on_host(trace, "ranges", "user_annotation"), trace.steps
    is_step = ranges["name"].isin(set(steps["name"].astype(str))) | ranges["name"].str.startswith(_STEP)
    marks = pd.DataFrame(
        {
            "cat": "user_annotation",
            "name": [f"{_STEP}{number}" for number in steps["step"]],
            "pid": trace.meta.process or 0,
            "tid": 0,
            "iteration": steps["step"],
            "start_ns": steps["host_start_ns"],
            "end_ns": steps["host_end_ns"],
        }
    )
    return pd.concat([ranges[~is_step], marks], ignore_index=True) if len(steps) else ranges


def _on_host(trace: RankTrace, table: str, category: str) -> pd.DataFrame:
    events = trace.table(table)
    begins, ends = (trace.steps[name].to_numpy() for name in ("host_start_ns", "host_end_ns"))
    return pd.DataFrame(
        {
            "cat": category,
            "name": events["name"].astype(str).to_numpy(),
            "pid": trace.meta.process or 0,
            "tid": events["thread"].to_numpy(),
            "iteration": _numbered(trace, step_at(begins, ends, events["start_ns"].to_numpy())),
            "start_ns": events["start_ns"].to_numpy(),
            "end_ns": events["end_ns"].to_numpy(),
        }
    )


def _numbered(trace: RankTrace, rows: np.ndarray) -> np.ndarray:
    """The numbers of steps by their rows; -1 of none."""
    numbers: np.ndarray = np.append(trace.steps["step"].to_numpy(), NONE)[rows]
    return numbers


def _partners(trace: RankTrace, frame: pd.DataFrame) -> np.ndarray:
    """`index` of an operation's launch, and of a launch's (last) operation; 0 where there should be one, else -1."""
    launch = trace.gpu_ops["launch"].to_numpy()
    partners: np.ndarray = np.where(frame["correlation"] > 0, 0, -1)
    launched = np.flatnonzero(launch != NONE)
    calls = len(trace.gpu_ops) + launch[launched]
    index = frame["index"].to_numpy()
    partners[launched], partners[calls] = index[calls], index[launched]
    return partners


# Our figures beside HolisticTraceAnalysis', each difference taken apart by what makes it.
#
# Its figure is brought to ours in steps: what it counts and we do not is taken out, what it leaves out is put in, its
# times and its kinds are replaced by ours. What a step changes is that reason's part of the difference, so
# the parts add
# up to it.


Figure = str

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

    Covers the whole capture, not steps.

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
    analysis = _analysis(hta, trace)
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
