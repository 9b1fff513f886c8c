"""What a finding saves of a step without the profiler, as an interval; severity and order by its lower end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from traceanalyzer.analyses.replay.changes import COST_NS, EVEN, EXPLAINED, NOT_MADE, PEERS, UNMATCHED, Change
from traceanalyzer.analyses.replay.replay import WITHIN_PCT, Engine, evened_ends, step_weights
from traceanalyzer.analyses.replay.schedule import Rescheduled
from traceanalyzer.analyses.statistics import LEAST_PCT, RATIO
from traceanalyzer.meaning.columns import Scale, Unit, per_cent, scale, time_text
from traceanalyzer.meaning.vocabulary import HIGH, INFO, LOW, MEDIUM, Severity, numbered

CUTS: tuple[tuple[float, Severity], ...] = ((10.0, HIGH), (3.0, MEDIUM), (LEAST_PCT, LOW))
"""Percent of a step from which the lower end of what a finding saves is so severe; below the last it is no finding."""

HALF_WAY = 0.5
"""How much is likely of a change to an ideal (CPUs, kernels or transfers that take no time); the lower end supposes
half of that: the pairs of docs/results/calibration.md saved 0.3 to 0.5 of such ideals."""

_SUPPOSED = {
    "data": "if every batch is ready in time",
    "collective": "without these calls",
    "cpu": "without this CPU work",
    "operator": "without these operators",
    "sync": "without these blocking calls",
    "loop": "with one call for all tensors",
    "stage": "with balanced stages",
}
"""What a change supposes that takes all of something away, by the part of the job that it changes."""

_EVENLY = "if all ranks had equal work"

_IDEAL = ("cpu", "compute", "copy", "comm", "collective", "small", "kernel", "operator")
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
        each: `/step`, or nothing of a whole trace.
        half_of: the time of which the change is supposed to take half away; empty where it takes all.
        supposing: what the step after the change supposes, where the fix alone does not say it.
        then: what bounds the step after the change, where that is something else than before.
    """

    before_ns: int
    likely_ns: int
    low_ns: int
    high_ns: int
    is_unprofiled: bool
    limit: str = ""
    remedy: str = ""
    each: str = "/step"
    half_of: str = ""
    supposing: str = ""
    then: str = ""

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
        return 100 * self.high_ns < LEAST_PCT * self.before_ns

    @property
    def level(self) -> Level:
        """Confidence: how much of the interval is open; never high where the saving supposes that half can go."""
        if self.low_ns >= HALF_WAY * self.high_ns and not self.half_of:
            return "low" if self.limit else "high"
        likely_ns = self.likely_ns * (HALF_WAY if self.half_of else 1)  # as far as the lower end supposes half of it
        return "medium" if self.low_ns >= HALF_WAY * likely_ns > 0 else "low"

    @property
    def words(self) -> str:
        """`about 27 ms/step (93 → 66 ms, 29%) if rank 1 matched its peers; the remaining 66 ms are CPU-bound`."""
        of = scale(Unit.NS, [self.before_ns])
        after = of.text(self.before_ns - self.likely_ns)
        change = f"{of.text(self.before_ns)} → {after} {of.symbol}, {_whole_percent(self.percent)}"
        profiled = "" if self.is_unprofiled else " as profiled"
        supposing = f" {self.supposing}" if self.supposing else ""
        then = f"; the remaining {after} {of.symbol} are {_in_sentence(self.then)}" if self.then else ""
        return f"about {time_text(self.likely_ns)}{self.each}{profiled} ({change}){supposing}{then}"

    @property
    def confidence(self) -> str:
        """`medium: between 24 and 31 ms; profiler overhead is estimated`."""
        of = scale(Unit.NS, [self.high_ns])
        low, high = of.text(self.low_ns), _time(self.high_ns, of)
        between = f"between {low} and {high}" if self.low_ns else f"up to {high}"
        span = high if low == of.text(self.high_ns) else between
        parts = [f"{self.level} ({span}{f'; {self.limit}' if self.limit else ''})", self.remedy]
        return ". ".join(filter(None, parts))

    @property
    def at_most(self) -> str:
        """`Saves up to 31 ms/step (profiler overhead is estimated).`: of what is not sure to save anything."""
        return f"Saves up to {time_text(self.high_ns)}{self.each}{f' ({self.limit})' if self.limit else ''}."

    def to_dict(self) -> dict[str, Any]:
        """As `summary.json` has it, in milliseconds."""
        ms = {"ms": self.likely_ns, "low_ms": self.low_ns, "high_ms": self.high_ns}
        ms |= {"before_ms": self.before_ns, "after_ms": self.before_ns - self.likely_ns}
        return {**{name: round(ns / 1e6, 4) for name, ns in ms.items()}, "percent": round(self.percent, 2)}


def _in_sentence(bound: str) -> str:
    """`CPU-bound`, `copy-bound`: acronyms stay."""
    return bound if bound[:2].isupper() else bound.lower()


def _time(time_ns: float, of: Scale) -> str:
    return f"{of.text(time_ns)} {of.symbol}"


def _whole_percent(share: float) -> str:
    return f"{share:.0f}%" if share >= 1 or not share else f"{per_cent(share)}%"


@dataclass(frozen=True, slots=True)
class Question:
    """A set of changes to weigh.

    Attributes:
        changes: what is different, made together.
        half_of: nothing makes all of this time go away: half of it is likely.
        is_once: it was seen in one step alone: whether it recurs is unknown, and the lower end is 0.
    """

    changes: tuple[Change, ...]
    half_of: str = ""
    is_once: bool = False

    @property
    def least(self) -> tuple[Change, ...]:
        """What is likely: of an ideal half."""
        return tuple(map(_half_way, self.changes)) if self.half_of else self.changes

    @property
    def supposing(self) -> str:
        """`if half of the launch time can be removed`, `if rank 1 matched its peers`."""
        if self.half_of:
            return f"if half of {self.half_of} can be removed"
        change, ranks = self.changes[0], sorted(self.changes[0].ranks or ())
        if change.to == PEERS and ranks:
            return f"if {numbered('rank', ranks)} matched {'its' if len(ranks) == 1 else 'their'} peers"
        is_gone = change.to in (0.0, NOT_MADE) or change.part in ("cpu", "stage")
        return _SUPPOSED.get(change.part, "") if is_gone else _EVENLY if change.to == EVEN else ""


def savings_of(engine: Engine, questions: Sequence[Question]) -> list[Saves]:
    """What each set of changes saves, by replaying the changed job at each corner of what is unknown.

    Corners are the profiler's overhead, and whether start delays without a recorded cause and waits for unknown
    partners stay after the change; of changes that save nothing at any overhead the others are not asked.
    """
    kept: tuple[Change, ...] = ()
    unknown = [kept, (EXPLAINED,), *([(UNMATCHED,), (EXPLAINED, UNMATCHED)] if engine.unmatched_ns else [])]
    found = _at_corners(engine, questions, [kept])
    worth = [question for question, saves in zip(questions, found, strict=True) if not saves.is_nothing]
    wider = iter(_at_corners(engine, worth, unknown))
    return [saves if saves.is_nothing else next(wider) for saves in found]


def saves_of_schedule(found: Rescheduled, engine: Engine) -> Saves:
    """What another order of passes saves; the lower end less what the play misses the recorded step by."""
    gains = [max(0, before - after) for before, after in found.steps_ns]
    low_ns = max(0, min(gains) - found.error_ns)
    before_ns, is_unprofiled = found.steps_ns[0][0], engine.has_cost_of_recording
    is_cut = found.wanted.stages_per_rank > found.recorded.stages_per_rank
    evens = f", if its {found.wanted.stages_per_rank} stages per rank balance the ranks' work" if is_cut else ""
    supposing = f"with the {found.wanted.name or 'other'} schedule{evens}"
    return Saves(before_ns, gains[0], low_ns, max(gains), is_unprofiled, supposing=supposing)


def saved_ns(engine: Engine, changes: tuple[Change, ...]) -> int:
    """What the changes, made together, save of a mean step at the profiler's typical overhead; negative if longer."""
    before, after = engine.steps([*_without_profiler(engine, changes)[:1], _asked(engine, changes)[0]]).mean(axis=0)
    return round(before - after)


def _at_corners(engine: Engine, questions: Sequence[Question], unknown: Sequence[tuple[Change, ...]]) -> list[Saves]:
    """All scenarios of all questions are replayed at once."""
    scenarios = [
        changes
        for each in questions
        for asked, corners in ((each.changes, unknown), (each.least, _kept(unknown)))
        for changes in (*_without_profiler(engine, asked), *_asked(engine, asked, corners))
    ]
    if scenarios:
        engine.steps(scenarios)
    return [_saves_of(engine, question, unknown) for question in questions]


def _kept(unknown: Sequence[tuple[Change, ...]]) -> list[tuple[Change, ...]]:
    """The corners that the lower end is of: delays that stay pin operations where they were."""
    return [gone for gone in unknown if EXPLAINED not in gone]


def _without_profiler(engine: Engine, changes: Iterable[Change]) -> tuple[tuple[Change, ...], ...]:
    """The job before the changes at each overhead of the profiler; as recorded where that is what they change."""
    return ((),) if any(change.part == "profiler" for change in changes) else engine.costs


def _asked(
    engine: Engine, changes: tuple[Change, ...], unknown: Sequence[tuple[Change, ...]] = ((),)
) -> list[tuple[Change, ...]]:
    """The job after the changes at each corner: by overhead, of each with what is unknown kept first."""
    return [(*changes, *cost, *gone) for cost in _without_profiler(engine, changes) for gone in unknown]


_ESTIMATED = (
    "profiler overhead is estimated",
    "Pass the step without it: analyze-traces FOLDER --unprofiled-step MS",
)
_SOLVED = ("a mean step does not show which calls the profiler slows", "")


def _saves_of(engine: Engine, question: Question, unknown: Sequence[tuple[Change, ...]]) -> Saves:
    costs = _without_profiler(engine, question.changes)
    full, least = _gains(engine, question.changes, unknown), _gains(engine, question.least, _kept(unknown))
    if question.half_of and question.least == question.changes:  # a word such as `alone` has no half
        least = HALF_WAY * least
    corners = full.mean(axis=0).reshape(len(costs), len(unknown))
    kept, gone = corners[0, 0], dict(zip(unknown, corners[0], strict=True))
    likely_ns, steps = max(0, round(least[:, 0].mean())), _span(least[:, :1])
    # Beyond all corners what a change saves is as uncertain as two runs of the same work are unlike: calibration.md.
    low_ns, high_ns = round(min(_span(least)[0], _span(full)[0]) / RATIO), round(_span(full)[1] * RATIO)
    before_ns = most_ns = round(engine.steps(costs[:1]).mean())
    likely_ns = min(likely_ns, round(_most_share(question.least) * before_ns))
    if question.half_of:  # nothing takes away more than all of it
        low_ns = round(HALF_WAY * low_ns)
        left_ns = engine.steps(_asked(engine, question.changes, unknown)).mean(axis=0).min()
        most_ns = min(_span(full)[1], round(before_ns - left_ns))
    high_ns = max(min(high_ns, most_ns), likely_ns)
    limit, remedy = _widest(
        {
            ("only part of an ideal can be reached", ""): full[:, 0].mean() - least[:, 0].mean(),
            _ESTIMATED if engine.peers.overhead_ns == COST_NS else _SOLVED: np.ptp(corners[:, 0]),
            ("some start delays have no recorded cause", "Record the CPU side"): gone.get((EXPLAINED,), kept) - kept,
            ("some ranks of the communication are not in the capture", "Record all ranks"): abs(
                gone.get((UNMATCHED,), kept) - kept
            ),
            ("steps save different amounts", "Record more steps"): steps[1] - steps[0],
            ("the fault was seen in one step", "Record more steps"): high_ns + 1 if question.is_once else 0,
        },
        high_ns,
    )
    low_ns = 0 if question.is_once else min(low_ns, likely_ns)
    each = "/step" if engine.windows.steps else ""
    return Saves(
        before_ns, likely_ns, low_ns, high_ns, costs != ((),), limit, remedy, each, question.half_of, question.supposing
    )  # fmt: skip


def _gains(engine: Engine, changes: tuple[Change, ...], unknown: Sequence[tuple[Change, ...]]) -> np.ndarray:
    """What each step (rows) gains at each corner (columns), by overhead, of each by what is unknown.

    Waits for unknown partners are gone before the change, too: what a change saves beside them may be waits.
    """
    costs = _without_profiler(engine, changes)
    before = [(*cost, UNMATCHED) if UNMATCHED in gone else cost for cost in costs for gone in unknown]
    return engine.steps(before) - engine.steps(_asked(engine, changes, unknown))


def _span(gains: np.ndarray) -> tuple[int, int]:
    """Lower and upper end over all corners (columns) of the mean of steps (rows) weighed anew; never negative."""
    gains = evened_ends(gains)
    weights = step_weights(len(gains))
    # One event in one step may not recur: the lower end takes the largest gain for the second largest (both ends: one).
    least = np.minimum(gains, np.sort(gains[: max(len(gains) - 1, 1)], axis=0)[-2:][0])
    low, high = (np.percentile(weights @ each, at, axis=0) for each, at in zip((least, gains), WITHIN_PCT, strict=True))
    return max(0, round(low.min())), max(0, round(high.max()))


def _widest(parts: Mapping[tuple[str, str], float], high_ns: int) -> tuple[str, str]:
    """What widens the interval most, if by more than half of its upper end."""
    words, ns = max(parts.items(), key=lambda item: item[1])
    return words if ns > HALF_WAY * high_ns else ("", "")


def _most_share(changes: Sequence[Change]) -> float:
    """What of a step factors of lengths can save: no more than the smallest of them takes away of its part."""
    is_factor = all(not isinstance(change.to, str) and change.part != "links" for change in changes)
    return 1 - min(float(change.to) for change in changes) if is_factor and changes else 1.0


def _half_way(change: Change) -> Change:
    if change.part not in _IDEAL or isinstance(change.to, str):
        return change
    return replace(change, to=1 - HALF_WAY * (1 - change.to))


def command_of(changes: Iterable[str]) -> str:
    """The changes as options of `what-if`: `rank 1=peers` is `--rank 1=peers`."""
    options = [_option(*text.partition(" in step")[::2]) for text in changes]
    steps = {step for _, step in options if step}
    within = f" --in-steps {steps.pop()}" if len(steps) == 1 else ""
    return f"analyze-traces what-if FOLDER {' '.join(option for option, _ in options)}{within}"


def _option(change: str, steps: str) -> tuple[str, str]:
    part, _, what = change.partition(" ")
    quoted = f'"{what}"' if " " in what or "<" in what else what
    return f"--{part} {quoted}", steps.removeprefix("s").strip()
