"""What the profiler adds to a step."""

from collections.abc import Iterator

from traceanalyzer.analyses.replay.changes import LEAST, MOST, TYPICAL
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import LOW


def profiler_overhead(run: Run) -> Iterator[Finding]:
    """Recording operators and CUDA calls takes the CPUs time: the step without it, estimated as a range.

    A fact: savings are already of the step without the profiler.
    """
    steps = run.engine.unprofiled_ns(()) if run.engine is not None and run.steps else {}
    if not steps or run.engine is None:
        return
    profiled_ns = run.engine.before_ns
    likely_ns, longest_ns, shortest_ns = (steps[cost][0] for cost in (TYPICAL, LEAST, MOST))
    if not run.is_worth(profiled_ns - likely_ns):
        return
    yield Finding(
        headline=f"Profiler overhead: a {time_text(profiled_ns)} step takes about {time_text(likely_ns)} unprofiled.",
        why=f"Estimated by the number of recorded calls: between {time_text(shortest_ns)} and {time_text(longest_ns)}.",
        fix="Pass --unprofiled-step with the step time measured without the profiler.",
        is_about_capture=True,
        severity=LOW,
        evidence=(
            {"profiled_ns": profiled_ns, "likely_ns": likely_ns, "least_ns": shortest_ns, "most_ns": longest_ns},
        ),
        table="replay",
    )
