"""What a finding saves of a step without the profiler, as an interval; severity and order by its lower end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from traceanalyzer.analyses.replay.changes import LEAST, MOST, TYPICAL, Change
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.meaning.columns import Scale, Unit, per_cent, scale
from traceanalyzer.meaning.vocabulary import HIGH, INFO, LOW, MEDIUM, Severity

CUTS: tuple[tuple[float, Severity], ...] = ((10.0, HIGH), (3.0, MEDIUM), (1.0, LOW))
"""Percent of a step from which the lower end of what a finding saves is so severe; below the last it is no finding."""

LEAST_PCT = CUTS[-1][0]
"""Percent of a step from which a saving is a finding."""

HALF_WAY = 0.5
"""How much of a change to an ideal (CPUs, kernels or transfers that take no time) the lower end supposes."""

_IDEAL = ("host", "compute", "comm", "collective", "kernel", "operator")
"""Parts of a job of which nothing makes all the time go away: a factor is an ideal, a word such as `peers` is none."""

Level = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Saves:
    """What a change saves of the job's mean step: without the profiler where its cost is known.

    Attributes:
        before_ns: the step without the change.
        likely_ns: what is saved at the typical cost of profiling.
        low_ns: the lower end.
        high_ns: the upper end.
        is_unprofiled: of a step without the profiler; else of the profiled one.
        limit: what makes the interval as wide as it is; empty where it is narrow.
        remedy: what recording would narrow it.
    """

    before_ns: int
    likely_ns: int
    low_ns: int
    high_ns: int
    is_unprofiled: bool
    limit: str = ""
    remedy: str = ""

    @property
    def percent(self) -> float:
        """What is saved as a share of the step before."""
        return 100 * self.likely_ns / self.before_ns if self.before_ns else 0.0

    @property
    def severity(self) -> Severity:
        """By the lower end, as a share of the step before; `info` is no finding."""
        share = 100 * self.low_ns / self.before_ns if self.before_ns else 0.0
        return next((severity for cut, severity in CUTS if share >= cut), INFO)

    @property
    def is_nothing(self) -> bool:
        """Even the upper end is too little."""
        return 100 * self.high_ns < CUTS[-1][0] * self.before_ns

    @property
    def level(self) -> Level:
        """Confidence: how much of the upper end the interval leaves open."""
        if self.low_ns >= HALF_WAY * self.high_ns:
            return "low" if self.limit else "high"
        return "medium" if self.low_ns > 0 else "low"

    @property
    def words(self) -> str:
        """`about 27 ms/step without the profiler (93 → 66 ms, 29%)`."""
        of = scale(Unit.NS, [self.before_ns])
        after = of.text(self.before_ns - self.likely_ns)
        profiled = "without the profiler" if self.is_unprofiled else "as profiled"
        change = f"{of.text(self.before_ns)} → {after} {of.symbol}, {_whole_percent(self.percent)}"
        return f"about {_time(self.likely_ns, of)}/step {profiled} ({change})"

    @property
    def confidence(self) -> str:
        """`medium: between 24 and 31 ms; profiler overhead is estimated`."""
        of = scale(Unit.NS, [self.high_ns])
        low, high = of.text(self.low_ns), _time(self.high_ns, of)
        between = f"between {low} and {high}" if self.low_ns else f"up to {high}"
        span = high if low == of.text(self.high_ns) else between
        parts = [f"{self.level} ({span}{f'; {self.limit}' if self.limit else ''})", self.remedy]
        return ". ".join(filter(None, parts))

    def to_dict(self) -> dict[str, Any]:
        """As `summary.json` has it, in milliseconds."""
        ms = {"ms": self.likely_ns, "low_ms": self.low_ns, "high_ms": self.high_ns}
        ms |= {"before_ms": self.before_ns, "after_ms": self.before_ns - self.likely_ns}
        return {**{name: round(ns / 1e6, 4) for name, ns in ms.items()}, "percent": round(self.percent, 2)}


def _time(time_ns: float, of: Scale) -> str:
    return f"{of.text(time_ns)} {of.symbol}"


def _whole_percent(share: float) -> str:
    return f"{share:.0f}%" if share >= 1 or not share else f"{per_cent(share)}%"


@dataclass(frozen=True, slots=True)
class Question:
    """A set of changes to weigh.

    Attributes:
        changes: what is different, made together.
        is_ideal: nothing makes all of the changed time go away: the lower end supposes half of it.
        is_once: it was seen in one step alone: whether it recurs is unknown, and the lower end is 0.
    """

    changes: tuple[Change, ...]
    is_ideal: bool = False
    is_once: bool = False


def savings_of(engine: Engine, questions: Sequence[Question]) -> list[Saves]:
    """What each set of changes saves, by replaying the changed job at each corner of what is unknown."""
    return [_saves_of(engine, question) for question in questions]


def _saves_of(engine: Engine, question: Question) -> Saves:
    changes = question.changes
    half = [_half_way(change) for change in changes] if question.is_ideal else changes
    full, least = _corners(engine, changes), _corners(engine, half)
    before_ns, likely_ns = least[TYPICAL]
    lows, highs = [ns for _, ns in least.values()], [ns for _, ns in full.values()]
    gain = engine.gains([tuple(changes)])[0]
    delayed_ns = gain.delayed_ns if gain.is_delayed else 0
    low_ns = 0 if question.is_once else max(0, min(lows) - engine.error_ns)
    high_ns = max(highs) + delayed_ns
    overhead_ns = max(highs) - min(ns for _, ns in full.values())
    limit, remedy = _widest(
        {
            ("only part of an ideal can be reached", ""): full[TYPICAL][1] - likely_ns,
            ("profiler overhead is estimated", "Pass --unprofiled-step"): overhead_ns,
            ("some start delays have no recorded cause", "Record with the CPU side"): delayed_ns,
            ("replay error", ""): engine.error_ns,
            ("seen in one step", "Record more steps"): high_ns + 1 if question.is_once else 0,
        },
        high_ns,
    )
    return Saves(before_ns, likely_ns, min(low_ns, likely_ns), max(high_ns, likely_ns), len(full) > 1, limit, remedy)


def _widest(parts: dict[tuple[str, str], int], high_ns: int) -> tuple[str, str]:
    """What widens the interval most, if by more than half of its upper end."""
    words, ns = max(parts.items(), key=lambda item: item[1])
    return words if ns > HALF_WAY * high_ns else ("", "")


def _half_way(change: Change) -> Change:
    if change.part not in _IDEAL or isinstance(change.to, str):
        return change
    return replace(change, to=1 - HALF_WAY * (1 - change.to))


def _corners(engine: Engine, changes: Sequence[Change]) -> dict[str, tuple[int, int]]:
    """The step before, and what is saved of it, by what profiling costs; of the profiled step where that is unknown."""
    steps = engine.unprofiled_ns(changes)
    if not steps:
        gain = engine.gains([tuple(changes)])[0]
        return {TYPICAL: (gain.before_ns, gain.gain_ns)}
    return {cost: (steps[cost][0], max(0, steps[cost][0] - steps[cost][1])) for cost in (TYPICAL, LEAST, MOST)}


def command_of(changes: Iterable[str]) -> str:
    """The changes as options of `what-if`: `rank 1=peers` is `--rank 1=peers`."""
    options = [_option(*text.partition(" in step")[::2]) for text in changes]
    steps = {step for _, step in options if step}
    within = f" --in-steps {steps.pop()}" if len(steps) == 1 else ""
    return f"analyze-traces what-if {' '.join(option for option, _ in options)}{within}"


def _option(change: str, steps: str) -> tuple[str, str]:
    part, _, what = change.partition(" ")
    quoted = f'"{what}"' if " " in what or "<" in what else what
    return f"--{part} {quoted}", steps.removeprefix("s").strip()
