"""The answer to one what-if, and whether the job has what the change is about."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.replay.changes import EVEN, OF_HOSTS, PEERS, RUN_TO_RUN, Change
from traceanalyzer.analyses.replay.critical_path import composition, path_of
from traceanalyzer.analyses.replay.gains import Engine, Gain
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.replay.schedule import NEEDED, Rescheduled, rescheduled
from traceanalyzer.analyses.statistics import PERCENT, SHARE
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.columns import time_span, time_text
from traceanalyzer.meaning.vocabulary import ON_PATH, gain_range_text, gain_text

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


# The answer to one what-if: the step before and after, how sure that is, and what the critical path consists of.


_LABELS = {one.key: one.label for one in ON_PATH}


@dataclass(frozen=True, slots=True)
class Answer:
    """What some changes, made together, do to the job's mean step.

    Attributes:
        changes: what was asked.
        gain: the step before and after.
        path_pct_before: percent of the critical path by category, as recorded.
        path_pct_after: the same after the changes.
        schedule: where another order of passes was asked for; then there is no path after the changes.
        unprofiled_ns: the step without the profiler before and after, by the profiler's overhead
            (`COST_NS`); empty where that is not known.
    """

    changes: tuple[Change, ...]
    gain: Gain
    path_pct_before: dict[str, float]
    path_pct_after: dict[str, float]
    schedule: Rescheduled | None = None
    unprofiled_ns: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_of_steps(self) -> bool:
        """Whether figures cover a mean complete step, else the whole capture."""
        return self.gain.steps is not None

    @property
    def error_pct(self) -> float | None:
        """100 · error / step before."""
        return 100 * self.gain.error_ns / self.gain.before_ns if self.gain.before_ns else None

    @property
    def unprofiled_afters_ns(self) -> tuple[int, int] | None:
        """The shortest and the longest step after the changes that a run without the profiler may have.

        By the profiler's overhead, and by how much runs of one job differ (`RUN_TO_RUN`).
        """
        afters = [after for _, after in self.unprofiled_ns.values()]
        return (round(min(afters) * (1 - RUN_TO_RUN)), round(max(afters) * (1 + RUN_TO_RUN))) if afters else None

    @property
    def unprofiled_gains_ns(self) -> tuple[int, int] | None:
        """The least and the most gain of that step; never negative."""
        gains = [max(0, before - after) for before, after in self.unprofiled_ns.values()]
        return (min(gains), max(gains)) if gains else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {
            "changes": [str(change) for change in self.changes],
            "of": "step" if self.is_of_steps else "capture",
            "before_ns": self.gain.before_ns,
            "after_ns": self.gain.after_ns,
            "gain_ns": self.gain.gain_ns,
            "most_gain_ns": self.gain.most_gain_ns,
            "error_ns": self.gain.error_ns,
            "error_pct": self.error_pct,
            "unmatched_ns": self.gain.unmatched_ns,
            "is_bound": self.gain.is_bound,
            "is_lower_bound": self.gain.is_lower_bound,
            "unprofiled_ns": self.gain.unprofiled_ns and self.gain.unprofiled_ns[0],
            "unprofiled_after_ns": self.gain.unprofiled_ns and self.gain.unprofiled_ns[1],
            "unprofiled_afters_ns": self.unprofiled_afters_ns,
            "unprofiled_gains_ns": self.unprofiled_gains_ns,
            "path_pct_before": self.path_pct_before,
            "path_pct_after": self.path_pct_after,
            **({"schedule": self.schedule.to_dict()} if self.schedule else {}),
        }

    def lines(self) -> list[str]:
        """The same in words."""
        gain, what = self.gain, "step" if self.is_of_steps else "capture"
        step = f"{what} {time_text(gain.before_ns)} → {time_text(gain.after_ns)}: {self._sentence()}"
        if self.schedule:
            return [step, *self._unprofiled(), *self.schedule.lines()]
        return [
            step,
            *self._unprofiled(),
            f"critical path before: {_answer_listed(self.path_pct_before)}",
            f"critical path after:  {self._after()}",
        ]

    def _after(self) -> str:
        is_same = self.gain.before_ns == self.gain.after_ns and self.path_pct_before == self.path_pct_after
        return "the same: nothing of what changes lies on it" if is_same else _answer_listed(self.path_pct_after)

    def _sentence(self) -> str:
        gain, what = self.gain, "step" if self.is_of_steps else "capture"
        error = time_text(gain.error_ns)
        change_ns = gain.before_ns - gain.after_ns
        if gain.is_delayed:
            said = f"gain {gain_range_text(gain.gain_ns, gain.most_gain_ns)}"
        elif change_ns < 0:
            said = f"{time_text(-change_ns)} longer"
        else:
            is_most = gain.is_bound and not gain.is_lower_bound
            said = f"gain {gain_text(time_text(change_ns), is_bound=is_most)}" if change_ns else "no gain"
        why = []
        if gain.error_ns > PERCENT / 100 * gain.before_ns:
            why.append(f"{error} ({self.error_pct:.1f}%) have no cause in the graph")
        if gain.is_delayed:
            why.append(f"{time_text(gain.delayed_ns)} of the changed {what} are start delays without a recorded cause")
        if gain.unmatched_ns > PERCENT / 100 * gain.before_ns:
            unmatched = f"{time_text(gain.unmatched_ns)} a rank"
            why.append(f"waits stay as they are in {unmatched} of communication whose partners are unknown")
        if gain.lacks_hosts:
            why.append("CPUs that are not in the capture may not launch a shorter one in time")
        return (
            f"{said}, a bound and no forecast: {', and '.join(why)}"
            if why
            else f"{said}; replayed unchanged it is {error} off"
        )

    def _unprofiled(self) -> list[str]:
        if self.gain.unprofiled_ns is None or any(change.part == "profiler" for change in self.changes):
            return []
        before, after = self.gain.unprofiled_ns
        gained = f"gain {time_text(before - after)}" if after < before else "no gain"
        said = gained if after <= before else f"{time_text(after - before)} longer"
        line = f"without the profiler, an estimate: {time_text(before)} → {time_text(after)}, {said}"
        if afters := self.unprofiled_afters_ns:
            line += f"; it may be {time_span(*afters)} after the change"
        if (gains := self.unprofiled_gains_ns) and after < before and gains[0] != gains[1]:
            line += f" and the gain {time_span(*gains)}, by the profiler's overhead"
        return [line]

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
        raise UsageError("say what is to be different, such as --host none or --rank 7=peers")
    for change in changes:
        check(engine, change)
    before = composition(path_of(replay, engine.job.recorded))
    schedules = [change for change in changes if change.part == "schedule"]
    if len(schedules) > 1:
        raise UsageError("a job runs one schedule: ask for one at a time")
    if schedules:
        others = [change for change in changes if change.part != "schedule"]
        found = rescheduled(engine, results, str(schedules[0].to), others)
        return Answer(tuple(changes), found.gain, before, {}, found, found.unprofiled_ns)
    after = composition(path_of(replay, engine.lengths(*changes)))
    gain, unprofiled = engine.gains([tuple(changes)])[0], engine.unprofiled_ns(changes)
    return Answer(tuple(changes), gain, before, after, unprofiled_ns=unprofiled)


def _answer_listed(percents: dict[str, float]) -> str:
    held = sorted(percents.items(), key=lambda item: -item[1])
    return ", ".join(f"{_LABELS[name]} {value:.1f}%" for name, value in held if value >= 0.05)
