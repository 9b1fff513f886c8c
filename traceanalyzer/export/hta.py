"""HolisticTraceAnalysis over traces that are in memory: its `TraceAnalysis`, filled from our tables."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.errors import needs_extra
from traceanalyzer.functions import loaded
from traceanalyzer.model import RankTrace, TraceSet
from traceanalyzer.model.schema import NONE

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
    analysis = hta.trace_analysis.TraceAnalysis.__new__(hta.trace_analysis.TraceAnalysis)
    analysis.t = made
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
    parts = [_gpu(trace), _calls(trace), _host(trace), _ranges(trace), _frames(trace)]
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
    steps = np.append(trace.steps["step"].to_numpy(), NONE)
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
            "iteration": steps[trace.op_step],
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


def _frames(trace: RankTrace) -> pd.DataFrame:
    return _on_host(trace, "frames", "python_function")


def _on_host(trace: RankTrace, table: str, category: str) -> pd.DataFrame:
    events = trace.table(table)
    times = events["start_ns"].to_numpy()
    begins, ends = (trace.steps[name].to_numpy() for name in ("host_start_ns", "host_end_ns"))
    row = np.searchsorted(begins, times, side="right") - 1
    steps = np.append(trace.steps["step"].to_numpy(), NONE)
    is_inside = (row >= 0) & (times < np.append(ends, 0)[row])
    return pd.DataFrame(
        {
            "cat": category,
            "name": events["name"].astype(str).to_numpy(),
            "pid": trace.meta.process or 0,
            "tid": events["thread"].to_numpy(),
            "iteration": steps[np.where(is_inside, row, NONE)],
            "start_ns": times,
            "end_ns": events["end_ns"].to_numpy(),
        }
    )


def _partners(trace: RankTrace, frame: pd.DataFrame) -> np.ndarray:
    """`index` of an operation's launch, and of a launch's (last) operation; 0 where there should be one, else -1."""
    launch = trace.gpu_ops["launch"].to_numpy()
    partners: np.ndarray = np.where(frame["correlation"] > 0, 0, -1)
    held = np.flatnonzero(launch != NONE)
    calls = len(trace.gpu_ops) + launch[held]
    index = frame["index"].to_numpy()
    partners[held], partners[calls] = index[calls], index[held]
    return partners
