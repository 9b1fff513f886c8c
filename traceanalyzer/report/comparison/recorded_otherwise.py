"""What can be said of times that different profilers, or one with other options, recorded: not that one is longer.

And of times in which recording itself took hosts long: what they are without, by an estimate.
"""

from statistics import fmean

from traceanalyzer.diff import Comparison, metrics
from traceanalyzer.diff.captures import Capture, Side
from traceanalyzer.diff.facts import Fact
from traceanalyzer.diff.names import MetricName
from traceanalyzer.findings.unprofiled import is_another
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import per_cent, signed, text
from traceanalyzer.report.comparison.path import has_open_waits

_FACTS = ("profiler", "profiler's options")


def sentences(comparison: Comparison, run: str, unit: str) -> list[str]:
    """Both times with what recorded them, and what may be compared all the same; nothing where that is the same."""
    number = comparison.runs.index(run)
    differing = [fact for fact in comparison.fairness.facts if fact.name in _FACTS and _differs(fact, number)]
    if not differing:
        return []
    base = comparison.base.label
    times = [
        f"{_time(comparison, name)} {unit} under {', '.join(str(fact.told[place]) for fact in differing)}"
        for name, place in ((run, number), (base, 0))
    ]
    made = [f"{run} takes {times[0]}, {base} {times[1]}: that says nothing of the runs, only of what recorded them."]
    compute = _change(comparison, run, "compute_ns", "Compute, whose kernels a profiler hardly changes", unit)
    return [*made, *unprofiled(comparison, run), *compute]


def unprofiled(comparison: Comparison, run: str) -> list[str]:
    """The two step times that run.json has without a profiler, where both runs have one."""
    return _change(comparison, run, "unprofiled_step_ns", "Without a profiler", of_a_step(comparison))


def estimated(comparison: Comparison, run: str) -> list[str]:
    """Both steps without what recording takes the hosts, where that is another change; none where runs tell theirs."""
    row = metrics.row(comparison.metrics, "step_ns", run)
    other = next(side for side in comparison.sides if side.label == run)
    before, after = _estimate_ns(comparison.base), _estimate_ns(other)
    if row is None or before is None or after is None or unprofiled(comparison, run):
        return []
    change, is_longer = after - before, after > before
    if comparison.fairness.scale.per_token or not is_another(float(row["change"]), change, float(row["value"])):
        return []
    share = f"{per_cent(100 * abs(change) / before)} % {'longer' if is_longer else 'shorter'}"
    times = f"{text(after, Unit.NS)}, {comparison.base.label} {text(before, Unit.NS)}"
    return [f"Recording slows hosts: without it {run} would take an estimated {times}: {share}."]


def _estimate_ns(side: Side) -> float | None:
    """The mean over its captures; `None` where one does not tell."""
    known = [_unprofiled_ns(held) for held in side.captures]
    return None if None in known else fmean(ns for ns in known if ns is not None)


def _unprofiled_ns(held: Capture) -> float | None:
    table = held.table("what_ifs")
    known = [] if table is None or has_open_waits(held) else table["unprofiled_ns"].dropna().tolist()
    return float(known[0]) if known else None


def of_a_step(comparison: Comparison) -> str:
    """What a step's own time is of: `a step`, or of unequal steps the same work."""
    scale = comparison.fairness.scale
    return f"per {scale.name}" if scale.per_token else "a step"


def _change(comparison: Comparison, run: str, metric: MetricName, what: str, unit: str) -> list[str]:
    before, after = (metrics.value(comparison.metrics, metric, name) for name in (comparison.base.label, run))
    if not before or not after:
        return []
    change = 100 * (float(after) / float(before) - 1)
    return [f"{what}: {text(before, Unit.NS)} → {text(after, Unit.NS)} {unit} ({signed(change)} %)."]


def _differs(fact: Fact, number: int) -> bool:
    return None not in (fact.told[0], fact.told[number]) and fact.told[0] != fact.told[number]


def _time(comparison: Comparison, run: str) -> str:
    return text(metrics.value(comparison.metrics, "step_ns", run), Unit.NS)
