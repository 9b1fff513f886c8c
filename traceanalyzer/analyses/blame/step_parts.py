"""What each step of a rank needs of its own: compute, copies, idle by cause, step by step without a gap between."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import all_known
from traceanalyzer.analyses.grouping import extreme_at, sums_at
from traceanalyzer.analyses.host import idle_causes
from traceanalyzer.analyses.host.cpu_collectives import cpu_collectives, waiting
from traceanalyzer.analyses.host.full_queue import into_full_queue
from traceanalyzer.analyses.host.idle_causes import Gaps
from traceanalyzer.analyses.time.intervals import Intervals, overlapping, unions
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import known_of, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, columns_of, table_of, without_rows
from traceanalyzer.selection import host_spans, step_at

OWN_PARTS = ("compute_ns", "exposed_copy_ns", *idle_causes.PARTS)
"""Time that is a rank's own doing; the rest of its time is communication that no compute hides."""

COLUMNS = (
    "step",
    "begin_ns",
    "end_ns",
    "is_partial",
    *OWN_PARTS,
    "met_ns",
    "met_in",
    "needed_host_ns",
    "loading_ns",
    "longest_call_ns",
    "operations",
)


def step_parts(trace: RankTrace) -> pd.DataFrame:
    """A row for each step, or one of step -1 for a capture without: `COLUMNS`.

    `met_ns` is the idle time in which the host waits for peers in a collective of the CPU: no work of its own, so it is
    no part of `host_ns` here; `met_in` is the collective in which most of it lies.
    `needed_host_ns` is the time of its range on the host, and up to the next one's, less that in blocking calls: what
    launching it takes; `loading_ns` is the time in it that is the data loader's.
    """
    windows = _windows(trace)
    if windows.empty:
        return without_rows(COLUMNS)
    begins, ends = array_of(windows, "begin_ns"), array_of(windows, "end_ns")
    compute, comm, copy = (unions(trace)[kind] for kind in ("compute", "comm", "copy"))
    gaps, of_gap = step_gaps(trace, windows)
    causes = _causes(trace, gaps, begins[of_gap], ends[of_gap])
    columns = {
        **columns_of(windows),
        "compute_ns": compute.covered_ns(begins, ends),
        "exposed_copy_ns": (copy - (compute | comm)).covered_ns(begins, ends),
        **{part: sums_at(of_gap, causes[part].to_numpy(), len(windows)) for part in (*idle_causes.PARTS, "met_ns")},
        "met_in": _met_in(trace, begins, ends),
        "needed_host_ns": _host_needed(trace, windows),
        "loading_ns": _loading(trace, windows),
        "longest_call_ns": _longest_call(trace, windows),
        "operations": _operations(trace, windows),
    }
    return table_of({name: columns[name] for name in COLUMNS})


def _causes(trace: RankTrace, gaps: Gaps, begins: np.ndarray, ends: np.ndarray) -> pd.DataFrame:
    """Each gap's part in [begin, end) by cause, `met_ns` taken from the host's."""
    causes = idle_causes.parts(trace, gaps, begins, ends)
    starts, launched = (np.clip(times, begins, ends) for times in (gaps.starts, gaps.launched))
    met = np.minimum(waiting(trace).covered_ns(starts, launched), causes[HOST.column].to_numpy())
    return causes.assign(**{HOST.column: causes[HOST.column] - met, "met_ns": met})


def _met_in(trace: RankTrace, begins: np.ndarray, ends: np.ndarray) -> pd.Series:
    """The collective of the CPU in which the host waits longest in each window; absent without one."""
    longest = np.zeros(len(begins), dtype=np.int64)
    named = np.full(len(begins), None, dtype=object)
    for name, own in cpu_collectives(trace).groupby("name"):
        waited = Intervals.of(array_of(own, "since_ns"), array_of(own, "end_ns")).covered_ns(begins, ends)
        named[waited > longest] = name
        longest = np.maximum(longest, waited)
    return pd.Series(named, dtype="str")


def step_gaps(trace: RankTrace, windows: pd.DataFrame) -> tuple[Gaps, np.ndarray]:
    """The stretches in which nothing runs with the rows of the steps that they lie in, once for each such step."""
    gaps = idle_causes.find(trace)
    begins, ends = array_of(windows, "begin_ns"), array_of(windows, "end_ns")
    gap, row = overlapping(gaps.starts, gaps.ends, Intervals(begins, ends))
    return gaps.take(gap), row


def _windows(trace: RankTrace) -> pd.DataFrame:
    """Step, begin, end and flag of each step that has a window, in order."""
    steps = trace.steps
    names = ["step", "begin_ns", "end_ns", "is_partial"]
    if trace.gpu_ops.empty:
        return without_rows(names)
    held = np.flatnonzero(known_of(steps, "start_ns"))
    if not len(held):
        whole = (NONE, trace.window.start_ns, trace.window.end_ns, trace.meta.is_truncated)
        return pd.DataFrame([whole], columns=names)
    table = table_of(
        {
            "step": array_of(steps, "step")[held],
            "begin_ns": whole_of(steps, "start_ns")[held],
            "end_ns": whole_of(steps, "end_ns")[held],
            "is_partial": array_of(steps, "is_partial")[held],
            "row": held,
        }
    )
    if trace.window.steps is not None:
        table = table[table["step"].isin(trace.window.steps)]
    return table.reset_index(drop=True)


def _host_needed(trace: RankTrace, windows: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """Length of each step's range on the host without calls that block it or find the queue full; absent without.

    Where waits for the GPU leave no events (JAX's hosts wait on their own futures) what is work cannot be told either.
    """
    if "row" not in windows or trace.meta.format == "xplane":
        return pd.array([pd.NA] * len(windows), dtype="Int64")
    starts, ends = _host_times(trace, windows)
    return all_known(ends - starts - _held_up(trace).covered_ns(starts, ends))


def _held_up(trace: RankTrace) -> Intervals:
    """When a call blocks the host or finds the queue full, or the host waits in a collective of the CPU."""
    rows, since = idle_causes.blocking(trace)
    queued = into_full_queue(trace)
    called, returned = (array_of(trace.api_calls, name) for name in ("start_ns", "end_ns"))
    blocked = Intervals.of(np.append(since, called[queued]), np.append(returned[rows], returned[queued]))
    return blocked | waiting(trace)


def _loading(trace: RankTrace, windows: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """What of each step's range on the host is in the data loader, and waits for no GPU and no peer; absent without."""
    if "row" not in windows:
        return pd.array([pd.NA] * len(windows), dtype="Int64")
    return all_known((idle_causes.loading(trace) - _held_up(trace)).covered_ns(*_host_times(trace, windows)))


def _host_times(trace: RankTrace, windows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """When the host is at each step."""
    starts, ends = host_spans(trace.steps)
    return starts[windows["row"]], ends[windows["row"]]


def _longest_call(trace: RankTrace, windows: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """The longest API call that began in the step's range and waits for nothing on the GPU."""
    if "row" not in windows or not len(trace.api_calls):
        return pd.array([pd.NA] * len(windows), dtype="Int64")
    is_free = ~into_full_queue(trace)
    is_free[idle_causes.blocking(trace)[0]] = False
    starts, ends = (array_of(trace.api_calls, name)[is_free] for name in ("start_ns", "end_ns"))
    at = step_at(*_host_times(trace, windows), starts)
    held = at != NONE
    longest = extreme_at(np.maximum, at[held], (ends - starts)[held], len(windows))
    return pd.arrays.IntegerArray(longest, np.bincount(at[held], minlength=len(windows)) == 0)


def _operations(trace: RankTrace, windows: pd.DataFrame) -> np.ndarray:
    """How many GPU operations each step launched; all of them without steps."""
    if "row" not in windows:
        return np.full(len(windows), len(trace.gpu_ops), dtype=np.int64)
    of_step = trace.op_step[trace.op_step != NONE]
    counts: np.ndarray = np.bincount(of_step, minlength=len(trace.steps))[array_of(windows, "row")]
    return counts
