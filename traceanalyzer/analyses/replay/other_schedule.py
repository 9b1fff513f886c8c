"""What a step takes when the pipelines run their passes in another standard order: the recorded passes, played so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gains import Engine, Gain
from traceanalyzer.analyses.replay.job import Lengths
from traceanalyzer.analyses.replay.recording import COST_NS, TYPICAL
from traceanalyzer.analyses.replay.schedule_lengths import Recorded, recorded
from traceanalyzer.analyses.replay.schedule_orders import (
    FORWARD,
    OF_INPUTS,
    OF_WEIGHTS,
    Order,
    order_of,
    read_schedule,
)  # fmt: skip
from traceanalyzer.analyses.replay.schedule_play import step_ns
from traceanalyzer.errors import InputError

NEEDED = ("pipeline", "pipeline_schedule")
"""Results that it stands on, beside the replay."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a pipeline's passes are run.

    Attributes:
        name: of the schedule; `None` where what was recorded fits none that is known.
        ranks: of each pipeline.
        stages_per_rank: of the model.
        microbatches: of a step.
        most_held: forward passes of which a rank holds activations at most, in microbatches of all of its stages.
    """

    name: str | None
    ranks: int
    stages_per_rank: int
    microbatches: int
    most_held: float

    def __str__(self) -> str:
        stages = f"{self.stages_per_rank} stage{'s' if self.stages_per_rank > 1 else ''} a rank"
        held = f"activations of at most {self.most_held:.3g} microbatches on a rank"
        name = self.name or "an order of its own"
        return f"{name}, {self.ranks} ranks, {stages}, {self.microbatches} microbatches, {held}"


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """Of the first pipeline how it was run and would be; and the gain of the job, without the profiler by its cost."""

    recorded: Plan
    wanted: Plan
    gain: Gain
    unprofiled_ns: Mapping[str, tuple[int, int]]
    has_halves: bool
    """The wanted order computes gradients of weights apart, and the recorded one did, too, or neither does."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        plans = {"recorded": self.recorded, "wanted": self.wanted}
        return {key: {name: getattr(plan, name) for name in Plan.__slots__} for key, plan in plans.items()}

    def lines(self) -> list[str]:
        """The same in words."""
        assumed = ["passes and messages take as long as recorded"]
        if self.wanted.stages_per_rank != self.recorded.stages_per_rank:
            assumed.append("the model is cut into stages of equal parts of the recorded ones")
        if not self.has_halves:
            assumed.append(
                "each half of a backward pass has half of its kernels and calls, and the half for weights goes through "
                "autograd's graph once more"
            )
        return [f"recorded: {self.recorded}", f"asked:    {self.wanted}", f"assumed: {'; '.join(assumed)}"]


def rescheduled(engine: Engine, tables: Mapping[str, Result], wanted: str, others: Sequence[Change]) -> Rescheduled:
    """Play the recorded passes in the wanted order.

    The gain is the play in the recorded order, with the other changes, less that in the wanted one; its error what the
    play in the recorded order, without a change, misses the recorded step by. Of several pipelines the slowest counts.

    Raises:
        InputError: the trace does not say which pass is which.
        UsageError: the schedule does not fit ranks and microbatches.
    """
    name, chunks = read_schedule(wanted)
    pipelines = _pipelines(tables["pipeline"].table)
    if not pipelines:
        raise InputError(f"schedule {wanted}: no ranks of this job send to each other as stages of a pipeline")
    steps = sorted(engine.windows.table["step"].dropna().astype(int).unique().tolist())
    if not steps:
        raise InputError(f"schedule {wanted}: the capture has no complete step of all ranks")
    passes = tables["pipeline_schedule"].to_frame()
    before = engine.job.recorded
    plays = [_Play(engine, passes, ranks, steps, before) for ranks in pipelines]
    first = plays[0]
    chunks = chunks or _usual_chunks(name, first.stages_per_rank)
    orders = [order_of(name, len(play.ranks), play.recorded.microbatches, chunks) for play in plays]
    own_ns = max(play.own_ns() for play in plays)
    after_ns = engine.before_ns - own_ns + _played(plays, orders, engine.lengths(*others) if others else before)
    unprofiled = _unprofiled(engine, plays, orders, others)
    gain = Gain(engine.before_ns, round(after_ns), round(abs(engine.before_ns - own_ns)), engine.unmatched_ns,
                unprofiled.get(TYPICAL), engine.windows.steps)  # fmt: skip
    plan = _plan(name, first.recorded.microbatches, orders[0])
    known = tables["pipeline"].table.set_index("rank")["schedule"].get(first.ranks[0])
    was = _plan(None if pd.isna(known) else str(known), first.recorded.microbatches, first.recorded.order)
    return Rescheduled(was, plan, gain, unprofiled, _is_split(orders[0]) == _is_split(first.recorded.order))


class _Play:
    """One pipeline."""

    def __init__(
        self, engine: Engine, passes: pd.DataFrame, ranks: list[int], steps: list[int], before: Lengths
    ) -> None:
        self.engine, self.passes, self.ranks, self.steps = engine, passes, ranks, steps
        own = passes[passes["rank"].isin(ranks) & passes["step"].isin(steps)]
        places = own.groupby("virtual_stage")["rank"].nunique()
        if set(own["rank"]) != set(ranks) or (places > 1).any():
            raise InputError("schedule: what the stages compute when is not known, or two ranks compute the same stage")
        self.recorded = self.with_lengths(before)
        self.stages_per_rank, rest = divmod(self.recorded.stages, len(ranks))
        if rest or self._own() is None:
            raise InputError(
                "schedule: the recorded passes do not run in the order in which they are numbered: the trace does not "
                "say which pass is of which stage and microbatch (PyTorch's schedules name them in ranges)"
            )

    def with_lengths(self, lengths: Lengths) -> Recorded:
        """As recorded, but for the graph's lengths."""
        return recorded(self.engine.job, lengths, self.passes, self.ranks, self.steps)

    def _own(self) -> float | None:
        return step_ns(self.recorded.order, self.recorded.lengths)

    def own_ns(self) -> float:
        """The step in its recorded order."""
        return self._own() or 0.0


def _slowest(play_ns: Sequence[float | None]) -> float:
    """The step of the slowest pipeline."""
    return max(each or 0.0 for each in play_ns)


def _played(
    plays: Sequence[_Play], orders: Sequence[Order], lengths: Lengths, as_recorded: Lengths | None = None
) -> float:
    """The step of the slowest pipeline with these lengths in these orders.

    `as_recorded` has what recording takes the hosts, where the lengths do not.
    """
    found = []
    for play, order in zip(plays, orders, strict=True):
        slow = play.with_lengths(as_recorded) if as_recorded else None
        stages = max(stage for _, stage, _ in _all(order)) + 1
        found.append(step_ns(order, play.with_lengths(lengths).in_stages(stages, slow)))
    return _slowest(found)


def _unprofiled(
    engine: Engine, plays: Sequence[_Play], orders: Sequence[Order], others: Sequence[Change]
) -> dict[str, tuple[int, int]]:
    """The step before and after without what recording takes the hosts, by what that is taken to be."""
    if not engine.has_cost_of_recording:
        return {}
    costs = [Change("profiler", cost) for cost in COST_NS]
    changed = engine.lengths(*others)
    found = {}
    for cost, replayed in zip(costs, engine.gains([(each,) for each in costs]), strict=True):
        plain = engine.lengths(cost)
        own = _slowest([step_ns(now.order, now.lengths) for now in (play.with_lengths(plain) for play in plays)])
        after = _played(plays, orders, engine.lengths(*others, cost), changed)
        found[str(cost.to)] = (replayed.after_ns, round(replayed.after_ns - own + after))
    return found


def _pipelines(table: pd.DataFrame) -> list[list[int]]:
    if table.empty:
        return []
    ordered = table.sort_values(["pipeline", "stage"])
    return [own["rank"].astype(int).tolist() for _, own in ordered.groupby("pipeline")]


def _usual_chunks(name: str, recorded_chunks: int) -> int:
    """Stages a rank, where none are asked for: of 1F1B one, interleaved at least two, else as recorded."""
    return {"1f1b": 1, "interleaved": max(recorded_chunks, 2)}.get(name, recorded_chunks)


def _plan(name: str | None, microbatches: int, order: Order) -> Plan:
    per_rank = len({stage for _, stage, _ in order[0]})
    return Plan(name, len(order), per_rank, microbatches, _most_held(order) / per_rank)


def _most_held(order: Order) -> int:
    """Forward passes whose backward one, or gradients of weights, have not been computed yet, at most on a rank."""
    most = 0
    for passes in order.values():
        last = {(stage, number): place for place, (_, stage, number) in enumerate(passes)}
        held = 0
        for place, (kind, stage, number) in enumerate(passes):
            held += kind == FORWARD
            most = max(most, held)
            held -= kind != FORWARD and last[stage, number] == place
    return most


def _is_split(order: Order) -> bool:
    return any(kind in (OF_INPUTS, OF_WEIGHTS) for kind, _, _ in _all(order))


def _all(order: Order) -> list[tuple[str, int, int]]:
    return [one for passes in order.values() for one in passes]
