"""Pipeline schedules replayed in another standard order."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.pipelines.orders import (
    BACKWARD,
    FORWARD,
    OF_INPUTS,
    OF_WEIGHTS,
    Item,
    Message,
    Order,
    Pass,
    in_order,
    needs,
    order_of,
    read_schedule,
    with_messages,
)
from traceanalyzer.analyses.pipelines.pipeline import KINDS
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.job import Job, Lengths
from traceanalyzer.analyses.replay.replay import Engine
from traceanalyzer.errors import InputError
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, rows_named

# A pipeline's step played: passes and messages of some order, with what they take the hosts and the GPUs.


@dataclass(frozen=True, slots=True)
class Cost:
    """What a pass, or what a rank does outside of passes, takes.

    Attributes:
        gpu_ns: its kernels, one after the other.
        before_ns: the host's work before its first launch, messages included.
        within_ns: the host's work from its first launch to its last one.
    """

    gpu_ns: float
    before_ns: float
    within_ns: float


class Outside(Struct, frozen=True):
    """What each rank does in a step outside of its passes: the optimizer, collectives, what begins the next step."""

    cost: Cost
    is_blocking: bool
    """The host waits in it until the GPU is done."""


@dataclass(frozen=True, slots=True)
class SchedulePlayLengths:
    """All that an order is played with.

    Attributes:
        of_pass: by kind and stage.
        outside: by the rank's place in the pipeline.
        message_ns: from when both ends are there.
        has_one_channel: a rank's messages follow each other, whatever their peers and directions.
    """

    of_pass: Mapping[tuple[str, int], Cost]
    outside: Mapping[int, Outside]
    message_ns: float
    has_one_channel: bool


def step_ns(order: Order, lengths: SchedulePlayLengths) -> float | None:
    """Length of a step played in this order; `None` where its passes wait for each other for ever.

    Each rank's host issues passes and messages in order and waits for nothing but, where that blocks, what is outside
    of passes. A pass runs when its rank's GPU is free, its host has launched it, and its inputs have come; kernels that
    the host launches later than the GPU could run them wait for it. A message takes its time from when both ends are
    free for it. A step lasts from when the last rank began it to when the last began the next.
    """
    programs = with_messages(order)
    if programs is None:
        return None
    host, gpu = (dict.fromkeys(programs, 0.0) for _ in range(2))
    _, before, after = (_step(programs, lengths, host, gpu) for _ in range(3))  # the third starts as in a long run
    return None if before is None or after is None else after - before


Channel = tuple[int, int | None, bool]
"""A rank's place, its peer's (`None` for all peers), and whether it sends."""


def _step(
    programs: Mapping[int, list[Item]], lengths: SchedulePlayLengths, host: dict[int, float], gpu: dict[int, float]
) -> float | None:
    """When the last rank of a step began its first pass; `host` and `gpu` are when they are free, before and after."""
    passes = [item for items in programs.values() for item in items if not isinstance(item, Message)]
    present, last = {*passes}, max(stage for _, stage, _ in passes)
    launched: dict[Item, float] = {}
    until: dict[Item, float] = {}
    queues: dict[int | Channel, list[Item]] = defaultdict(list)
    for place, items in programs.items():
        for item in items:
            if isinstance(item, Message):
                channel = (place, None, False) if lengths.has_one_channel else (place, *item.other_end(place))
                queues[channel].append(item)
                launched[item] = max(launched.get(item, 0.0), host[place])
                continue
            cost = lengths.of_pass[item[0], item[1]]
            queues[place].append(item)
            launched[item] = host[place] + cost.before_ns
            until[item] = host[place] = launched[item] + cost.within_ns
    place_of = {item: place for place, items in programs.items() for item in items if not isinstance(item, Message)}
    begins: dict[int, float] = {}

    def ends(item: Item, free_ns: float, ended: Mapping[Item, float]) -> float | None:
        if isinstance(item, Message):
            made = ended.get(item.of)
            return None if made is None else max(free_ns, made, launched[item]) + lengths.message_ns
        place = place_of[item]
        needed = [
            each if place_of[each] == place else Message(each, place_of[each], place)
            for each in needs(item, last, present)
        ]
        if not {*needed} <= ended.keys():
            return None
        begin = max([free_ns, launched[item], *(ended[each] for each in needed)])
        begins.setdefault(place, begin)
        return max(begin + lengths.of_pass[item[0], item[1]].gpu_ns, until[item])

    ended = in_order(queues, ends, {**gpu})
    if ended is None:
        return None
    for place, items in programs.items():
        outside = lengths.outside[place]
        started = host[place] + outside.cost.before_ns
        gpu[place] = max([gpu[place], started, *(ended[item] for item in items)]) + outside.cost.gpu_ns
        host[place] = max(started + outside.cost.within_ns, gpu[place] if outside.is_blocking else 0.0)
    return max(begins.values())


# What the passes of a recorded pipeline take on GPUs and hosts, and of a model cut into other stages.


OF_MESSAGES = (*POINT_TO_POINT, "send_recv")
"""What messages are called."""

_PARTS = ["gpu_ns", "before_ns", "within_ns"]

_WAITS_FOR_GPU = re.compile("Synchronize|Memcpy|^urQueueFinish|^urEventWait")
"""Calls that block a host until the GPU is done; launches do while their queue is full, which costs nothing more."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A pipeline as recorded.

    Attributes:
        order: of its first complete step.
        lengths: means over the complete steps, by kind and stage.
        stages: of the model.
        microbatches: of a step.
    """

    order: Order
    lengths: SchedulePlayLengths
    stages: int
    microbatches: int

    def in_stages(self, stages: int, as_recorded: "Recorded | None" = None) -> SchedulePlayLengths:
        """The same lengths with the model cut into so many stages, and backward passes whole as well as in halves.

        Stages follow each other as recorded, and a recorded stage that is cut gives each part as much; but what the
        host does before a pass's first launch (messages, the schedule's own work) it does before every pass.

        Args:
            stages: of the model.
            as_recorded: the same with the profiler's overhead on hosts, where these lengths are without it.
        """
        slow = (as_recorded or self).lengths.of_pass
        if stages == self.stages:
            rows = [self._of_stage(stage, slow) for stage in range(stages)]
        else:
            whole = [self._whole(stage, slow) for stage in range(self.stages)]
            cut = zip(*(_cut(list(side), stages) for side in zip(*whole, strict=True)), strict=True)
            forward = _cut([self.lengths.of_pass.get((FORWARD, at), NOTHING) for at in range(self.stages)], stages)
            rows = [(forward[stage], *_split(stage, *two)) for stage, two in enumerate(cut)]
        kinds = (FORWARD, BACKWARD, OF_INPUTS, OF_WEIGHTS)
        of_pass = {(kind, stage): cost for stage, row in enumerate(rows) for kind, cost in zip(kinds, row, strict=True)}
        return replace(self.lengths, of_pass=of_pass)

    def _of_stage(self, stage: int, slow: Mapping[tuple[str, int], Cost]) -> tuple[Cost, Cost, Cost, Cost]:
        """Forward pass, backward one, and its halves: those recorded where there are any."""
        known = self.lengths.of_pass
        whole, inputs, weights = _split(stage, *self._whole(stage, slow))
        if (OF_WEIGHTS, stage) in known:
            inputs, weights = (known.get((kind, stage), NOTHING) for kind in (OF_INPUTS, OF_WEIGHTS))
        return known.get((FORWARD, stage), NOTHING), whole, inputs, weights

    def _whole(self, stage: int, slow: Mapping[tuple[str, int], Cost]) -> tuple[Cost, Cost]:
        """A stage's backward pass, and the same with what recording takes the host."""
        if (BACKWARD, stage) in slow:
            return self.lengths.of_pass[BACKWARD, stage], slow[BACKWARD, stage]
        (first, second), (slow_first, slow_second) = (
            [of_pass.get((kind, stage), NOTHING) for kind in (OF_INPUTS, OF_WEIGHTS)]
            for of_pass in (self.lengths.of_pass, slow)
        )
        if (OF_INPUTS, stage) not in slow:
            return second, slow_second
        within = (slow_first.within_ns + slow_second.within_ns) / 2
        slower = (slow_first.before_ns + slow_second.before_ns) / 2
        gpu, before = first.gpu_ns + second.gpu_ns, (first.before_ns + second.before_ns) / 2
        own = max(first.within_ns + second.within_ns - within, 0.0)
        return Cost(gpu, before, own), Cost(gpu, slower, within)


NOTHING = Cost(0.0, 0.0, 0.0)


def _split(stage: int, whole: Cost, slow: Cost) -> tuple[Cost, Cost, Cost]:
    """A backward pass, and its halves for inputs and for weights.

    Each half has half of the kernels and calls. The one for weights goes through autograd's graph once more, in Python
    of which nothing is recorded: for as long as a whole pass takes while it is recorded. The model's first stage has no
    gradients of inputs: its backward pass is all for weights.
    """
    if not stage:
        return whole, NOTHING, whole
    half = Cost(whole.gpu_ns / 2, whole.before_ns, whole.within_ns / 2)
    return whole, half, replace(half, within_ns=half.within_ns + slow.within_ns)


def _cut(row: Sequence[Cost], stages: int) -> list[Cost]:
    """Costs of stages of equal width over those that are known; what comes before a pass is the mean of theirs."""
    edges = np.linspace(0, len(row), stages + 1)
    total = np.cumsum([(0.0, 0.0, 0.0), *((cost.gpu_ns, cost.before_ns, cost.within_ns) for cost in row)], axis=0)
    known = np.arange(len(row) + 1)
    parts = np.stack([np.diff(np.interp(edges, known, column)) for column in total.T], axis=1)
    return [Cost(float(gpu), float(before) * stages / len(row), float(within)) for gpu, before, within in parts]


def recorded(job: Job, lengths: Lengths, passes: pd.DataFrame, ranks: Sequence[int], steps: Sequence[int]) -> Recorded:
    """A pipeline of these ranks (in order of stage) over these steps, with the graph's lengths.

    `passes` are rows of `PipelineSchedule`; where they are not numbered by stage each rank is one.
    """
    places = {rank: place for place, rank in enumerate(ranks)}
    own = passes[passes["rank"].isin(ranks) & passes["step"].isin(steps)]
    stage = own["virtual_stage"].fillna(own["rank"].map(places)).astype("int64")
    own = own.assign(stage=stage, kind=own["phase"].map(KINDS)).sort_values(["rank", "slot"], kind="stable")
    parts, outside = [], {}
    for rank, rows in own.groupby("rank"):
        costs, around = _of_rank(job, lengths, int(rank), rows)
        parts.append(costs)
        outside[places[int(rank)]] = around
    table = pd.concat(parts).groupby(["kind", "stage"])[_PARTS].mean()
    first = own[own["step"] == min(steps)]
    order: dict[int, list[Pass]] = {
        places[int(rank)]: list(zip(rows["kind"], rows["stage"], rows["microbatch"].astype(int), strict=True))
        for rank, rows in first.groupby("rank")
    }
    of_pass = {(str(key[0]), int(key[1])): Cost(*map(float, row)) for key, row in zip(table.index, table.to_numpy())}  # noqa: B905 - of one table
    message_ns, has_one_channel = _of_messages(job, lengths, ranks)
    made = SchedulePlayLengths(of_pass, outside, message_ns, has_one_channel)
    return Recorded(order, made, int(own["stage"].max()) + 1, int(own["microbatch"].nunique()))


def _of_rank(job: Job, lengths: Lengths, rank: int, passes: pd.DataFrame) -> tuple[pd.DataFrame, Outside]:
    """What each of the rank's passes takes; and what is outside of them in a step."""
    nodes, timing = job.nodes[rank], lengths.timing[rank]
    ops = nodes.piece.ops
    row = _pass_of_op(ops, passes)
    ns = timing.duration_ns + np.where(row != NONE, nodes.known.turnaround_ns, 0)
    held = np.flatnonzero(row != NONE)
    gpu = np.bincount(row[held], ns[held], minlength=len(passes))
    done = np.append(0, np.cumsum(timing.host.ns))
    launch = array_of(ops, "launch")
    launched = held[launch[held] != NONE]
    first, last = np.full(len(passes), len(done)), np.full(len(passes), NONE)
    np.minimum.at(first, row[launched], launch[launched])
    np.maximum.at(last, row[launched], launch[launched])
    has_host = last != NONE
    first, last = np.where(has_host, first, 0), np.where(has_host, last, 0)
    begun, ended = done[first + 1], done[last + 1]
    step = passes["step"].to_numpy(dtype=np.int64)
    is_first = np.append(True, step[1:] != step[:-1])
    before = np.where(is_first | ~has_host, 0, begun - np.append(0, ended[:-1]))
    costs = passes[["kind", "stage"]].assign(
        gpu_ns=gpu, before_ns=np.maximum(before, 0), within_ns=np.where(has_host, ended - begun, 0)
    )
    count = max(len(np.unique(step)), 1)
    in_steps = np.isin(array_of(ops, "step"), step)
    other = in_steps & (row == NONE) & ~nodes.is_of("comm")
    joins = job.joins_of(rank)
    joins = joins[~job.joins["collective"].isin(OF_MESSAGES).to_numpy()[joins]]
    joins = joins[in_steps[array_of(job.joins, "op")[joins]]]
    gpu_ns = int(ns[other].sum()) + int(np.maximum(lengths.transfer_ns[joins], 0).sum())
    ends = np.flatnonzero(np.append(is_first[1:], False))  # the last passes of steps that another follows
    host_ns = float(np.mean(np.maximum(begun[ends + 1] - ended[ends], 0))) if len(ends) else 0.0
    blocks = _blocks_outside(nodes.piece.segments, nodes.piece.host, timing.is_blocking, first, last, ends)
    return costs, Outside(Cost(gpu_ns / count, host_ns / 2, host_ns / 2), blocks)


def _blocks_outside(
    segments: pd.DataFrame, host: pd.DataFrame, is_blocking: np.ndarray, first: np.ndarray, last: np.ndarray,
    ends: np.ndarray,
) -> bool:  # fmt: skip
    """Whether the host is blocked between the last pass of a step and the first one of the next."""
    of = array_of(host, "segment")
    waits = is_blocking & segments["call"].str.contains(_WAITS_FOR_GPU).to_numpy(dtype=bool)
    spans = ((of[last[end]] + 1, of[first[end + 1]] + 1) for end in ends.tolist() if len(of))
    return any(bool(waits[begin:until].any()) for begin, until in spans)


def _pass_of_op(ops: pd.DataFrame, passes: pd.DataFrame) -> np.ndarray:
    """Place in `passes` of each operation that computes in one, -1 for others."""
    starts = array_of(ops, "start_ns")
    begins = passes["start_ns"].to_numpy(dtype=np.int64)
    order = np.argsort(begins, kind="stable")
    place = np.searchsorted(begins[order], starts, side="right") - 1
    row = order[np.maximum(place, 0)]
    is_inside = (
        (place >= 0) & (starts < passes["end_ns"].to_numpy(dtype=np.int64)[row]) & rows_named(ops, "kind", "compute")
    )
    found: np.ndarray = np.where(is_inside, row, NONE)
    return found


def _of_messages(job: Job, lengths: Lengths, ranks: Sequence[int]) -> tuple[float, bool]:
    """What a message takes, and whether a rank's messages follow each other on one stream."""
    taken = lengths.transfer_ns[_is_message(job, ranks)]
    return float(np.median(taken[taken > 0])) if (taken > 0).any() else 0.0, is_on_one_stream(job, ranks)


def is_on_one_stream(job: Job, ranks: Sequence[int]) -> bool:
    """Whether each of these ranks that exchanges messages has all of its own on one stream, and any of them does."""
    held = _is_message(job, ranks)
    ops, rank_of = array_of(job.joins, "op"), array_of(job.joins, "rank")
    own = [array_of(job.nodes[rank].piece.ops, "stream")[ops[held & (rank_of == rank)]] for rank in set(rank_of[held])]
    return bool(own) and all(len(np.unique(streams)) == 1 for streams in own)


def _is_message(job: Job, ranks: Sequence[int]) -> np.ndarray:
    held: np.ndarray = (job.joins["collective"].isin(OF_MESSAGES) & job.joins["rank"].isin(ranks)).to_numpy()
    return held


# What a step takes when the pipelines run their passes in another standard order: the recorded passes, played so.


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
    """Of the first pipeline how it was run and would be, and the job's step.

    Attributes:
        recorded: how it was run.
        wanted: how it would be.
        steps_ns: before and after, without the profiler by its cost (`Engine.costs`).
        error_ns: by how much the play in the recorded order misses the recorded step.
        has_halves: the wanted order computes gradients of weights apart, and so did the recorded one, or neither does.
    """

    recorded: Plan
    wanted: Plan
    steps_ns: Sequence[tuple[int, int]]
    error_ns: int
    has_halves: bool

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

    The step becomes shorter by the play in the recorded order less that in the wanted one, with the other changes. Of
    several pipelines the slowest counts.

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
    # Of 1F1B one stage a rank, interleaved at least two, else as recorded.
    usual = {"1f1b": 1, "interleaved": max(first.stages_per_rank, 2)}
    chunks = chunks or usual.get(name, first.stages_per_rank)
    orders = [order_of(name, len(play.ranks), play.recorded.microbatches, chunks) for play in plays]
    error_ns = round(abs(engine.before_ns - max(play.own_ns for play in plays)))
    as_recorded = engine.lengths(*others) if others else before
    steps = []
    for cost, replayed in zip(engine.costs, engine.steps(engine.costs).mean(axis=0), strict=True):
        plain = [play.with_lengths(engine.lengths(*cost) if cost else before) for play in plays]
        own_ns = max(step_ns(now.order, now.lengths) or 0.0 for now in plain)
        changed = engine.lengths(*others, *cost) if cost else as_recorded
        after_ns = replayed - own_ns + _played(plays, orders, changed, as_recorded if cost else None)
        steps.append((round(replayed), round(after_ns)))
    plan = _plan(name, first.recorded.microbatches, orders[0])
    known = tables["pipeline"].table.set_index("rank")["schedule"].get(first.ranks[0])
    was = _plan(None if pd.isna(known) else str(known), first.recorded.microbatches, first.recorded.order)
    return Rescheduled(was, plan, steps, error_ns, _is_split(orders[0]) == _is_split(first.recorded.order))


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
        own_ns = step_ns(self.recorded.order, self.recorded.lengths)
        if rest or own_ns is None:
            raise InputError(
                "schedule: the recorded passes do not run in the order in which they are numbered: the trace does not "
                "say which pass is of which stage and microbatch (PyTorch's schedules name them in ranges)"
            )
        self.own_ns = own_ns  # the step in its recorded order

    def with_lengths(self, lengths: Lengths) -> Recorded:
        """As recorded, but for the graph's lengths."""
        return recorded(self.engine.job, lengths, self.passes, self.ranks, self.steps)


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
    return max(each or 0.0 for each in found)


def _pipelines(table: pd.DataFrame) -> list[list[int]]:
    if table.empty:
        return []
    ordered = table.sort_values(["pipeline", "stage"])
    return [own["rank"].astype(int).tolist() for _, own in ordered.groupby("pipeline")]


def _plan(name: str | None, microbatches: int, order: Order) -> Plan:
    per_rank = len({stage for _, stage, _ in order[0]})
    return Plan(name, len(order), per_rank, microbatches, _most_in_flight(order) / per_rank)


def _most_in_flight(order: Order) -> int:
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
