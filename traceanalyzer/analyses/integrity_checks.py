"""What can be wrong with one rank's trace, check by check."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.analyses import host_names
from traceanalyzer.analyses.host_activity import innermost_at
from traceanalyzer.analyses.inferred import INFERRED
from traceanalyzer.model import NONE, RankTrace
from traceanalyzer.selection import is_lost_launch

HIGH, MEDIUM, LOW, INFO = "high", "medium", "low", "info"


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is wrong.

    Attributes:
        check: name of the check.
        severity: high, medium, low or info.
        count: how many events it concerns.
        total: of how many; `None` where that says nothing.
        sentence: what it is, for people.
        affects: Results whose figures it makes unreliable.
    """

    check: str
    severity: str
    count: int
    total: int | None
    sentence: str
    affects: tuple[str, ...]


def file_damage(trace: RankTrace) -> list[Defect]:
    """Files cut off while they were written, and events that could not be read."""
    found = []
    if trace.meta.is_truncated:
        text = "The file is cut off: what came after its end is missing from every figure."
        found.append(Defect("truncated", HIGH, 1, None, text, ("breakdown", "steps", "idle", "nccl", "kernels")))
    if trace.meta.events_skipped:
        count = trace.meta.events_skipped
        text = f"{_many(count, 'event')} could not be read and {_are(count)} left out."
        found.append(Defect("unreadable_events", MEDIUM, count, None, text, ("breakdown", "kernels")))
    return found


def launches_without_operation(trace: RankTrace) -> list[Defect]:
    """Kernel launches that no GPU operation of the process answers, while a CUDA graph is captured or not."""
    calls = trace.api_calls
    is_launch = host_names.matches(calls["name"], host_names.is_launch)
    if trace.gpu_ops.empty or not is_launch.any():
        return []
    lost = int((is_lost_launch(calls) & ~_in_graph_capture(trace)).sum())
    text = (
        f"{_many(lost, 'launch', 'launches')} of {int(is_launch.sum()):,} on the host {_have(lost)} no GPU operation "
        "in the capture: work is missing, or was recorded elsewhere; the steps concerned are partial."
    )
    affects = ("breakdown", "steps", "headline", "kernels", "idle")
    return [Defect("launches_without_operation", MEDIUM, lost, int(is_launch.sum()), text, affects)] if lost else []


def operations_without_launch(trace: RankTrace) -> list[Defect]:
    """GPU operations whose host call the capture does not have."""
    total = len(trace.gpu_ops)
    count = int((trace.gpu_ops["launch"] == NONE).sum())
    if not count:
        return []
    severity = MEDIUM if 10 * count >= total else LOW if 100 * count >= total else INFO
    text = (
        f"{_many(count, 'GPU operation')} of {total:,} {_have(count)} no launch in the capture (queued before it "
        "began): they belong to no step and no phase, and idle time before them has no known cause."
    )
    return [Defect("operations_without_launch", severity, count, total, text, ("steps", "phases", "idle", "launches"))]


def communication_without_arguments(calls: pd.DataFrame) -> list[Defect]:
    """Communication kernels without arguments, of their own or of a host operation."""
    if calls.empty:
        return []
    kernels = calls[calls["collective"] != "peer_copy"]
    count, total = int(kernels["arguments"].isna().sum()), len(kernels)
    text = (
        f"{_many(count, 'communication operation')} of {total:,} {_have(count)} no arguments: process group and sizes "
        "are unknown, bandwidths leave them out."
    )
    severity = MEDIUM if 10 * count >= total else LOW
    return [Defect("communication_without_arguments", severity, count, total, text, ("nccl", "calls"))] if count else []


def inferred_arguments(calls: pd.DataFrame) -> list[Defect]:
    """Communication kernels whose arguments are those of the same position in a later step."""
    count = int((calls["arguments"] == INFERRED).sum()) if len(calls) else 0
    text = f"The arguments of {_many(count, 'communication operation')} are inferred from later steps."
    return [Defect("inferred_arguments", INFO, count, len(calls), text, ("nccl", "calls"))] if count else []


def overlaps_on_a_stream(trace: RankTrace) -> list[Defect]:
    """Operations that start before an earlier one of their stream has ended: a stream runs one after the other."""
    ops = trace.gpu_ops[["start_ns", "end_ns", "stream"]].sort_values(["stream", "start_ns", "end_ns"], kind="stable")
    reach = ops.groupby("stream")["end_ns"].cummax().groupby(ops["stream"]).shift()
    count = int((ops["start_ns"] < reach).sum())
    text = (
        f"{_many(count, 'operation')} {_start(count)} before an earlier one on the same stream has ended (programmatic "
        "dependent launches do; else the times are inexact): sums of durations exceed the time that has passed."
    )
    return [Defect("overlaps_on_a_stream", LOW, count, len(ops), text, ("kernels", "streams"))] if count else []


def operations_without_duration(trace: RankTrace) -> list[Defect]:
    """Operations that end where they start, or before (a reader takes negative durations for none)."""
    count = int((trace.gpu_ops["end_ns"] <= trace.gpu_ops["start_ns"]).sum())
    text = f"{_many(count, 'GPU operation')} {_have(count)} no duration, or had a negative one: their time is missing."
    return (
        [Defect("operations_without_duration", LOW, count, len(trace.gpu_ops), text, ("kernels", "breakdown"))]
        if count
        else []
    )


def operations_before_their_launch(trace: RankTrace) -> list[Defect]:
    """Operations that start before the call that launched them: the clocks of host and GPU disagree."""
    launch = trace.gpu_ops["launch"].to_numpy()
    held = launch != NONE
    if not held.any():
        return []
    early = trace.gpu_ops["start_ns"].to_numpy()[held] < trace.api_calls["start_ns"].to_numpy()[launch[held]]
    count = int(early.sum())
    text = (
        f"{_many(count, 'GPU operation')} {_start(count)} before the call that launched them: the clocks of host and "
        "GPU disagree, and causes of idle time are inexact."
    )
    return (
        [Defect("operations_before_their_launch", MEDIUM, count, int(held.sum()), text, ("idle", "gaps", "launches"))]
        if count
        else []
    )


def partial_steps(trace: RankTrace) -> list[Defect]:
    """Steps that the capture cuts."""
    count = int(trace.steps["is_partial"].sum()) if len(trace.steps) else 0
    text = f"{_many(count, 'step')} of {len(trace.steps)} {_are(count)} partial: shown, but left out of means."
    return [Defect("partial_steps", LOW, count, len(trace.steps), text, ("steps", "headline"))] if count else []


def cuda_graphs(trace: RankTrace) -> list[Defect]:
    """CUDA graphs: captured during the recording, replayed, or recorded as one operation of unknown content."""
    calls, ops = trace.api_calls, trace.gpu_ops
    found = []
    captures = int(host_names.matches(calls["name"], host_names.is_graph_capture).sum())
    if captures:
        text = f"{_many(captures, 'call')} of graph capture: what is launched inside runs later, as part of a replay."
        found.append(Defect("graph_captures", INFO, captures, None, text, ("launches",)))
    unknown = int((ops["activity"] == "graph").sum())
    if unknown:
        text = f"{_many(unknown, 'CUDA graph')} recorded as a whole: busy time is right, what ran inside is unknown."
        found.append(
            Defect("graphs_of_unknown_content", MEDIUM, unknown, len(ops), text, ("breakdown", "kernels", "nccl"))
        )
    nodes = int(ops["graph_node"].notna().sum())
    if nodes:
        text = f"{_many(nodes, 'operation')} ran in CUDA graphs: one launch stands for many, operators are unknown."
        found.append(Defect("graph_operations", INFO, nodes, len(ops), text, ("launches", "phases")))
    return found


def _in_graph_capture(trace: RankTrace) -> np.ndarray:
    """API calls between a thread's begin and end of graph capture: they record instead of launching."""
    calls = trace.api_calls
    inside = np.zeros(len(calls), dtype=bool)
    begins = host_names.matches(calls["name"], lambda name: "StreamBeginCapture" in name)
    ends = host_names.matches(calls["name"], lambda name: "StreamEndCapture" in name)
    for thread in np.unique(calls["thread"].to_numpy()[begins]):
        own = (calls["thread"] == thread).to_numpy()
        first = calls["start_ns"].to_numpy()[own & begins]
        last = calls["end_ns"].to_numpy()[own & ends]
        after = np.searchsorted(last, first)
        closed = np.append(last, np.iinfo(np.int64).max)[after]
        inside[own] |= innermost_at(first, closed, calls["start_ns"].to_numpy()[own]) != NONE
    return inside


def _many(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _start(count: int) -> str:
    return "starts" if count == 1 else "start"
