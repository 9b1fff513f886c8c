"""Profiler overhead: what the profiler adds to a step.

The PyTorch profiler costs the CPU a few microseconds for every operator and call it records: a CPU-bound step is
longer under it. Savings are for a step without the profiler.

**Fix.** Pass the step time measured without the profiler: `--unprofiled-step 92.8`, a `run.json`, or a framework's
log beside the traces. The overhead is then solved for instead of estimated.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.replay.changes import COST_NS
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import LOW

PLACE = "The capture", 3


def profiler_overhead(run: Run) -> Iterator[Finding]:
    """Recording operators and CUDA calls takes the CPUs time: the step without it, estimated as a range, or measured.

    A fact: savings are already of the step without the profiler.
    """
    if run.engine is None or not run.steps or not any(run.engine.costs):
        return
    steps = [float(ns) for ns in run.engine.steps(run.engine.costs).mean(axis=0)]
    profiled_ns, likely_ns, low, high = run.engine.before_ns, steps[0], time_text(min(steps)), time_text(max(steps))
    if likely_ns <= 0 or not run.is_worth(
        profiled_ns - likely_ns
    ):  # of times that contradict each other it tells nothing
        return
    is_known = dict(run.engine.peers.overhead_ns) != dict(COST_NS)  # solved for
    takes = f"takes {'' if is_known else 'about '}{time_text(likely_ns)}"
    yield Finding(
        headline=f"Profiler overhead: a step {takes} without the profiler.",
        why="The step without the profiler was measured."
        if is_known
        else f"Estimated by the number of recorded calls: between {low} and {high}.",
        fix="" if is_known else "Give the step time measured without the profiler: --unprofiled-step MS.",
        is_about_capture=True,
        severity=LOW,
        evidence=({"profiled_ns": profiled_ns, "likely_ns": round(likely_ns), "is_known": is_known},),
        table="replay",
    )
