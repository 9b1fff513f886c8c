"""The answer to one what-if, and whether the job has what the change is about."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.replay.changes import EVEN, OF_HOSTS, PEERS, Change
from traceanalyzer.analyses.replay.critical_path import composition, path_of
from traceanalyzer.analyses.replay.replay import Engine, Replay
from traceanalyzer.analyses.replay.schedule import NEEDED, Rescheduled, rescheduled
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.findings.savings import Question, Saves, saved_ns, saves_of_schedule, savings_of
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import ON_PATH

# Whether a job has what a change is about: a name that nothing bears would be answered with a gain of nothing.


_COLUMNS = {"operator": ("ops", "operator"), "kernel": ("ops", "name"), "collective": ("ops", "collective"),
            "sync": ("segments", "call")}  # fmt: skip

_PART = re.compile(r"\d+/[1-9]\d*(@[\d,]+)?")


def check(engine: Engine, change: Change) -> None:
    """Refuse what is not there.

    Raises:
        UsageError: no such rank, step, name or phase, or nobody to compare with.
        InputError: the captures have no CPU side.
    """
    ranks = list(engine.job.nodes)
    missing = [] if change.part == "stage" else sorted(set(change.ranks or ()) - set(ranks))
    if missing:
        raise UsageError(f"{change}: there is no rank {missing[0]}; there are {_present_listed(ranks)}")
    if change.part in OF_HOSTS and not engine.has_hosts:
        raise InputError(f"{change}: the traces have no kernel launches, so CPU work cannot be changed")
    if change.part == "stage" and not engine.ranks_of_stages:
        raise UsageError(f"{change}: no ranks of this job send to each other as stages of a pipeline")
    steps = sorted(set(change.steps or ()) - _steps(engine))
    if steps:
        known = sorted(_steps(engine))
        raise UsageError(
            f"{change}: there is no step {steps[0]}" + (f"; there are {_present_listed(known)}" if known else "")
        )
    if change.name and change.part in _COLUMNS:
        _check_name(engine, change, change.name)
    if len(ranks) < 2 and change.to in (PEERS, EVEN):
        raise UsageError(f"{change}: there is one rank only, and nothing to compare it with")
    if len(ranks) < 2 and change.part == "waits":
        raise UsageError(f"{change}: there is one rank only, and how long it waits for others is not known")
    if change.to == PEERS:
        _check_peers(engine, change)


def _check_peers(engine: Engine, change: Change) -> None:
    """Refuse a comparison with nobody: it would be answered with a gain of nothing, or of all."""
    ranks = engine.of_ranks([change])[0].ranks
    if change.part == "comm":
        if ranks is None or ranks >= set(engine.job.nodes):
            raise UsageError(f"{change}: transfers are compared with those of other ranks, and none are left")
        return
    changed = frozenset(engine.job.nodes) if ranks is None else ranks
    if not any(len(engine.peers.of(rank, changed)) for rank in changed):
        raise UsageError(
            f"{change}: no other rank runs the same kernels in the same steps, so there is nothing to compare with"
        )


def _check_name(engine: Engine, change: Change, name: str) -> None:
    known = _names(engine, *_COLUMNS[change.part])
    if change.part == "collective":
        known += _names(engine, "meetings", "name")
        known += [MESSAGES] if {*known} & {*POINT_TO_POINT} else []
    wanted = name.partition("@")[0] if change.part in ("sync", "collective", "operator") else name
    is_all = change.part == "operator" and not wanted
    if is_all or wanted in known or (change.part == "kernel" and any(wanted in own for own in known)):
        _check_phase(engine, change, name)
        return
    what = "blocking call" if change.part == "sync" else change.part
    if not known:
        raise UsageError(f"{change}: this job has no {what} with a name")
    near = get_close_matches(wanted, known, cutoff=SHARE)
    said = f"did you mean {', '.join(near)}" if near else f"there are {known[0]} and others"
    verb = "contains" if change.part == "kernel" else "is called"
    raise UsageError(f"{change}: no {what} {verb} {wanted!r}; {said}")


def _check_phase(engine: Engine, change: Change, name: str) -> None:
    """Of `sync CALL@PHASE` and of a collective the phase, there also a part such as `3/4`; of an operator the pass."""
    phase = name.partition("@")[2] if change.part in ("sync", "collective", "operator") else ""
    if change.part == "collective" and _PART.fullmatch(phase):
        return
    table, column = "host" if change.part == "sync" else "ops", "autograd" if change.part == "operator" else "phase"
    known = _names(engine, table, column)
    if phase and phase not in known:
        raise UsageError(f"{change}: nothing is launched in a phase {phase!r}; there are {', '.join(known)}")


def _names(engine: Engine, table: str, column: str) -> list[str]:
    """All names of a column of the ranks' pieces, the most frequent first."""
    counts = [
        getattr(nodes.piece, table)[column].astype("object").value_counts() for nodes in engine.job.nodes.values()
    ]
    total = pd.concat(counts).groupby(level=0).sum().sort_values(ascending=False, kind="stable")
    return [str(name) for name, count in total.items() if name and count]


def _steps(engine: Engine) -> set[int]:
    found: set[int] = set()
    for nodes in engine.job.nodes.values():
        for table in (nodes.piece.ops, nodes.piece.host):
            found |= set(table["step"].unique().tolist())
    return {step for step in found if step >= 0}


def _present_listed(numbers: Iterable[int]) -> str:
    ordered = list(numbers)
    whole = ordered == list(range(ordered[0], ordered[-1] + 1)) and len(ordered) > 1
    return f"{ordered[0]} to {ordered[-1]}" if whole else ", ".join(map(str, ordered))


# The answer to one what-if: what it saves, as a finding says it, and what the critical path consists of.


_LABELS = {one.key: one.label for one in ON_PATH}


@dataclass(frozen=True, slots=True)
class Answer:
    """What some changes, made together, do to the job's mean step.

    Attributes:
        changes: what was asked.
        saves: what they save.
        longer_ns: by how much the step is longer instead.
        error_ns: by how much the replay without a change misses the recording.
        path_pct_before: percent of the critical path by category.
        path_pct_after: the same after the changes.
        schedule: where another order of passes was asked for; then there is no path after the changes.
    """

    changes: tuple[Change, ...]
    saves: Saves
    longer_ns: int
    error_ns: int
    path_pct_before: dict[str, float]
    path_pct_after: dict[str, float]
    schedule: Rescheduled | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {
            "changes": [str(change) for change in self.changes],
            "of": "step" if self.saves.each else "capture",
            **self.saves.to_dict(),
            "after_ms": (self.saves.before_ns - self.saves.likely_ns + self.longer_ns) / 1e6,
            "is_unprofiled": self.saves.is_unprofiled,
            "confidence": self.saves.confidence,
            "error_ms": self.error_ns / 1e6,
            "path_pct_before": self.path_pct_before,
            "path_pct_after": self.path_pct_after,
            **({"schedule": self.schedule.to_dict()} if self.schedule else {}),
        }

    def lines(self) -> list[str]:
        """The same in words."""
        saves, error = self.saves, f"The replay without a change misses the recording by {time_text(self.error_ns)}."
        profiled = "without the profiler" if saves.is_unprofiled else "as profiled"
        before, longer = time_text(saves.before_ns), time_text(saves.before_ns + self.longer_ns)
        if self.longer_ns:
            said = [f"Takes {time_text(self.longer_ns)} longer {profiled} ({before} → {longer}).", error]
        elif saves.likely_ns:
            said = [f"Saves {saves.words}.", f"Confidence: {saves.confidence}. {error}"]
        else:
            said = [f"Saves nothing of {before} {profiled}.", error]
        if self.schedule:
            return [*said, *self.schedule.lines()]
        is_same = self.path_pct_before == self.path_pct_after
        after = "the same" if is_same else _answer_listed(self.path_pct_after)
        return [*said, f"Critical path before: {_answer_listed(self.path_pct_before)}", f"Critical path after: {after}"]

    def __repr__(self) -> str:
        return "\n".join([f"what if {', '.join(map(str, self.changes))}", *self.lines()])


def needed(changes: Sequence[Change]) -> tuple[str, ...]:
    """Names of the Results that an answer stands on."""
    return ("replay", *(NEEDED if any(change.part == "schedule" for change in changes) else ()))


def answer(results: Mapping[str, Result], changes: Sequence[Change]) -> Answer:
    """Run the job with the changes; `results` holds those that are `needed`.

    Raises:
        UsageError: nothing is changed, or ranks that the job does not have.
        InputError: there is no graph, or no pipeline that could take another schedule.
    """
    replay = results["replay"]
    assert isinstance(replay, Replay)
    engine = replay.engine
    if engine is None:
        raise InputError(f"the job cannot be replayed: {replay.why_not}")
    if not changes:
        raise UsageError("say what is to be different, such as --cpu none or --rank 7=peers")
    for change in changes:
        check(engine, change)
    cost = () if any(change.part == "profiler" for change in changes) else engine.costs[0]
    before = composition(path_of(replay, engine.lengths(*cost)))
    schedules = [change for change in changes if change.part == "schedule"]
    if len(schedules) > 1:
        raise UsageError("a job runs one schedule: ask for one at a time")
    if schedules:
        others = [change for change in changes if change.part != "schedule"]
        found = rescheduled(engine, results, str(schedules[0].to), others)
        longer_ns = max(0, found.steps_ns[0][1] - found.steps_ns[0][0])
        return Answer(tuple(changes), saves_of_schedule(found, engine), longer_ns, found.error_ns, before, {}, found)
    after = composition(path_of(replay, engine.lengths(*changes, *cost)))
    (saves,) = savings_of(engine, [Question(tuple(changes))])
    saves = replace(saves, supposing="")  # the reader stated the changes
    longer_ns = max(0, -saved_ns(engine, tuple(changes)))
    return Answer(tuple(changes), saves, longer_ns, engine.error_ns, before, after)


def _answer_listed(percents: dict[str, float]) -> str:
    held = sorted(percents.items(), key=lambda item: -item[1])
    return ", ".join(f"{_LABELS[name]} {value:.1f}%" for name, value in held if value >= 0.05)
