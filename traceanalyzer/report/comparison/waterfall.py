"""From the base's step time to another run's: what each part adds or takes away."""

from collections.abc import Mapping
from dataclasses import dataclass

from traceanalyzer.diff import Comparison, Side, metrics
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    COMPUTE,
    COPY,
    IDLE_CAUSES,
    PARTS,
    TRANSFER,
    UNKNOWN,
    UNSPLIT,
    WAIT,
)  # fmt: skip
from traceanalyzer.report.comparison import path

SPLIT = tuple(part.column for part in COMM_PARTS)

_PATH_LOOKS = {COMPUTE.kind: COMPUTE.kind, COMM.kind: TRANSFER.kind, COPY.kind: COPY.kind,
               **{cause.key: cause.part.kind for cause in IDLE_CAUSES}}  # fmt: skip
"""By category of a critical path."""

_LOOKS = {part.column: part for part in (*PARTS, TRANSFER, WAIT, UNSPLIT)}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a step in two runs, mean over ranks."""

    metric: str
    label: str
    kind: str
    base_ns: float
    other_ns: float

    @property
    def change_ns(self) -> float:
        """Other − base."""
        return self.other_ns - self.base_ns


def path_parts(comparison: Comparison, run: str) -> list[Part]:
    """The critical paths of the base and the run by category: what each waits for is not in it, only what it did.

    The sums are the lengths of the replayed jobs a step. Empty where either was not replayed.
    """
    sums = [_path(comparison, side) for side in comparison.sides if side.label in (comparison.base.label, run)]
    if len(sums) != 2 or not all(sums):
        return []
    return [
        Part(category, words, _PATH_LOOKS.get(category, UNKNOWN.part.kind), *(own.get(category, 0) for own in sums))
        for category, words in path.WORDS.items()
        if any(category in own for own in sums)
    ]


def _path(comparison: Comparison, side: Side) -> dict[str, float]:
    table = side.first.table("critical_path")
    if table is None:
        return {}
    own = table.groupby("category")["path_ns"].sum() / comparison.fairness.scale.divisor(side.first)
    return {str(category): float(time_ns) for category, time_ns in own.items() if time_ns}


def parts(comparison: Comparison, run: str) -> list[Part]:
    """The parts of the base's and the run's step; their changes add up to the step's change.

    Exposed communication is told apart into transfer and wait only where both runs tell: not where of one nothing
    could be, as of a rank that is here alone. Empty when a run does not tell its parts.
    """
    names = [metric.name for metric in metrics.METRICS if metric.part]
    found = {}
    for name in names:
        base, other = (metrics.value(comparison.metrics, name, one) for one in (comparison.base.label, run))
        if base is not None and other is not None:
            found[name] = Part(name, _LOOKS[name].label, _LOOKS[name].kind, float(base), float(other))
    steps = [metrics.value(comparison.metrics, "step_ns", one) for one in (comparison.base.label, run)]
    wholes = (SPLIT,) if _one_splits_none(found) else ((COMM.column,), SPLIT)
    for left_out in wholes:
        chosen = [part for name, part in found.items() if name not in left_out]
        sums = (sum(part.base_ns for part in chosen), sum(part.other_ns for part in chosen))
        # Means over ranks of whole nanoseconds: less than one nanosecond of rounding.
        if None not in steps and all(abs(one - two) < 1 for one, two in zip(sums, steps, strict=True)):
            return [part for part in chosen if part.base_ns or part.other_ns]
    return []


def _one_splits_none(found: Mapping[str, Part]) -> bool:
    """Whether all exposed communication of one run is neither transfer nor wait, and the other's is."""
    split = [found[one.column] for one in (TRANSFER, WAIT) if one.column in found]
    whole = found.get(COMM.column)
    if whole is None or not split:
        return False
    tells = [sum(getattr(part, side) for part in split) > 0 for side in _SIDES]
    has = [getattr(whole, side) > 0 for side in _SIDES]
    return all(has) and tells[0] != tells[1]


_SIDES = ("base_ns", "other_ns")
