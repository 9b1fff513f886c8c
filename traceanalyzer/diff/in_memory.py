"""Traces that are in memory, as a side of a comparison."""

from collections.abc import Sequence
from dataclasses import replace

from traceanalyzer.analyses import run
from traceanalyzer.diff import lanes, matrix_shapes
from traceanalyzer.diff.captures import Capture, Side, is_of_steps, of_results, shared_steps
from traceanalyzer.model import TraceSet
from traceanalyzer.selection import with_steps


def side_of(repeats: Sequence[TraceSet]) -> Side:
    """One side, of one capture or several repeats; it is called as the first is."""
    captures = tuple(_captured(traces) for traces in repeats)
    return Side(captures[0].label, captures)


def _captured(traces: TraceSet) -> Capture:
    """The small tables over the steps that all ranks completed."""
    found = run(traces.ranks, ("steps", "breakdown"))
    steps, ranks = (found[name].to_frame() for name in ("steps", "breakdown"))
    shared = shared_steps(steps, ranks)
    looked_at = traces
    if not is_of_steps(steps, ranks, shared):
        wanted = ",".join(map(str, shared)) if shared else "all"
        looked_at = replace(traces, ranks=tuple(with_steps(trace, wanted) for trace in traces.ranks))
    results = run(looked_at.ranks)
    skipped = tuple(f"{item.what}: {item.why}" for item in traces.skipped)
    return Capture(
        label=traces.label,
        source="traces",
        tables=of_results(results),
        steps=shared,
        is_exact=True,
        lanes=lanes.of_results(results, shared),
        step_calls=lanes.calls_of(results, shared),
        notes=(*traces.notes, *skipped),
        dimensions=matrix_shapes.dimensions(results),
    )
