"""What the passes of a recorded pipeline take on GPUs and hosts, and of a model cut into other stages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.pipelines.stage_ranges import BACKWARD as WHOLE
from traceanalyzer.analyses.pipelines.stage_ranges import FORWARD as AHEAD
from traceanalyzer.analyses.pipelines.stage_ranges import INPUTS, WEIGHTS
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.analyses.replay.job import Lengths as JobLengths
from traceanalyzer.analyses.replay.schedule_orders import BACKWARD, FORWARD, OF_INPUTS, OF_WEIGHTS, Order, Pass
from traceanalyzer.analyses.replay.schedule_play import Cost, Lengths, Outside
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

KINDS: Mapping[str, str] = {AHEAD: FORWARD, WHOLE: BACKWARD, INPUTS: OF_INPUTS, WEIGHTS: OF_WEIGHTS}
"""Phases of the pipeline's schedule as kinds of passes."""

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
    lengths: Lengths
    stages: int
    microbatches: int

    def in_stages(self, stages: int, as_recorded: "Recorded | None" = None) -> Lengths:
        """The same lengths with the model cut into so many stages, and backward passes whole as well as in halves.

        Stages follow each other as recorded, and a recorded stage that is cut gives each part as much; but what the
        host does before a pass's first launch (messages, the schedule's own work) it does before every pass.

        Args:
            stages: of the model.
            as_recorded: the same with what recording takes the hosts, where these lengths are without it.
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
        within = (slow_first.within_ns + slow_second.within_ns) / WALKS
        slower = (slow_first.before_ns + slow_second.before_ns) / 2
        gpu, before = first.gpu_ns + second.gpu_ns, (first.before_ns + second.before_ns) / 2
        own = max(first.within_ns + second.within_ns - (WALKS - 1) * within, 0.0)
        return Cost(gpu, before, own), Cost(gpu, slower, within)


NOTHING = Cost(0.0, 0.0, 0.0)

WALKS = 2
"""A backward pass in halves takes the host as long as so many whole ones: it goes through the graph once more."""


def _split(stage: int, whole: Cost, slow: Cost) -> tuple[Cost, Cost, Cost]:
    """A backward pass, and its halves for inputs and for weights.

    Each half has half of the kernels and calls. The one for weights goes through autograd's graph once more, in Python
    of which nothing is recorded: for as long as a whole pass takes while it is recorded. The model's first stage has no
    gradients of inputs: its backward pass is all for weights.
    """
    if not stage:
        return whole, NOTHING, whole
    half = Cost(whole.gpu_ns / 2, whole.before_ns, whole.within_ns / 2)
    return whole, half, replace(half, within_ns=half.within_ns + (WALKS - 1) * slow.within_ns)


def _cut(row: Sequence[Cost], stages: int) -> list[Cost]:
    """Costs of stages of equal width over those that are known; what comes before a pass is the mean of theirs."""
    edges = np.linspace(0, len(row), stages + 1)
    total = np.cumsum([(0.0, 0.0, 0.0), *((cost.gpu_ns, cost.before_ns, cost.within_ns) for cost in row)], axis=0)
    known = np.arange(len(row) + 1)
    parts = np.stack([np.diff(np.interp(edges, known, column)) for column in total.T], axis=1)
    return [Cost(float(gpu), float(before) * stages / len(row), float(within)) for gpu, before, within in parts]


def recorded(
    job: Job, lengths: JobLengths, passes: pd.DataFrame, ranks: Sequence[int], steps: Sequence[int]
) -> Recorded:
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
    made = Lengths(of_pass, outside, message_ns, has_one_channel)
    return Recorded(order, made, int(own["stage"].max()) + 1, int(own["microbatch"].nunique()))


def _of_rank(job: Job, lengths: JobLengths, rank: int, passes: pd.DataFrame) -> tuple[pd.DataFrame, Outside]:
    """What each of the rank's passes takes; and what is outside of them in a step."""
    nodes, timing = job.nodes[rank], lengths.timing[rank]
    ops = nodes.piece.ops
    row = _pass_of_op(ops, passes)
    ns = timing.duration_ns + np.where(row != NONE, nodes.known.turnaround_ns, 0)
    held = np.flatnonzero(row != NONE)
    gpu = np.bincount(row[held], ns[held], minlength=len(passes))
    done = np.append(0, np.cumsum(timing.host_ns))
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
    other = in_steps & (row == NONE) & ~nodes.is_comm
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
        (place >= 0) & (starts < passes["end_ns"].to_numpy(dtype=np.int64)[row]) & is_any(ops["kind"], "compute")
    )
    found: np.ndarray = np.where(is_inside, row, NONE)
    return found


def _of_messages(job: Job, lengths: JobLengths, ranks: Sequence[int]) -> tuple[float, bool]:
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
