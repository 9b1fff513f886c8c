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

KINDS: Mapping[str, str] = {AHEAD: FORWARD, WHOLE: BACKWARD, INPUTS: OF_INPUTS, WEIGHTS: OF_WEIGHTS}
"""Phases of the pipeline's schedule as kinds of passes."""

OF_MESSAGES = (*POINT_TO_POINT, "send_recv")
"""What messages are called."""

_PARTS = ["gpu_ns", "before_ns", "within_ns"]

_WAITS_FOR_GPU = re.compile("Synchronize|Memcpy")
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

    def in_stages(self, stages: int) -> Lengths:
        """The same lengths with the model cut into so many stages.

        Stages follow each other as recorded, and a recorded stage that is cut gives each part as much. Each half of a
        backward pass takes half of its kernels' time, and the host as long as all of it does, for it goes through the
        graph once more: two halves joined take the host their mean.
        """
        known = self.lengths.of_pass
        forward, whole, inputs, weights = (
            [known.get((kind, stage), NOTHING) for stage in range(self.stages)]
            for kind in (FORWARD, BACKWARD, OF_INPUTS, OF_WEIGHTS)
        )
        # A first stage may need no gradients of its inputs: then that half takes no time, and is none that is missing.
        are_apart = [OF_WEIGHTS in (kind for kind, at in known if at == stage) for stage in range(self.stages)]
        halves = [
            (first, second) if is_apart else (_half(all_), _half(all_))
            for all_, first, second, is_apart in zip(whole, inputs, weights, are_apart, strict=True)
        ]
        backward = [all_ if all_ != NOTHING else _joined(*two) for all_, two in zip(whole, halves, strict=True)]
        rows = {FORWARD: forward, BACKWARD: backward, OF_INPUTS: [two[0] for two in halves],
                OF_WEIGHTS: [two[1] for two in halves]}  # fmt: skip
        of_pass = {(kind, stage): cost for kind, row in rows.items() for stage, cost in enumerate(_cut(row, stages))}
        return replace(self.lengths, of_pass=of_pass)


NOTHING = Cost(0.0, 0.0, 0.0)


def _half(whole: Cost) -> Cost:
    return replace(whole, gpu_ns=whole.gpu_ns / 2)


def _joined(first: Cost, second: Cost) -> Cost:
    hosts = 1 if NOTHING in (first, second) else 2
    return Cost(
        first.gpu_ns + second.gpu_ns,
        (first.before_ns + second.before_ns) / hosts,
        (first.within_ns + second.within_ns) / hosts,
    )


def _cut(row: Sequence[Cost], stages: int) -> list[Cost]:
    """Costs of stages of equal width over those that are known."""
    edges = np.linspace(0, len(row), stages + 1)
    total = np.cumsum([(0.0, 0.0, 0.0), *((cost.gpu_ns, cost.before_ns, cost.within_ns) for cost in row)], axis=0)
    known = np.arange(len(row) + 1)
    parts = np.stack([np.diff(np.interp(edges, known, column)) for column in total.T], axis=1)
    return [Cost(*map(float, part)) for part in parts]


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
    launch = ops["launch"].to_numpy()
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
    in_steps = np.isin(ops["step"].to_numpy(), step)
    other = in_steps & (row == NONE) & ~nodes.is_comm
    joins = job.joins_of(rank)
    joins = joins[~job.joins["collective"].isin(OF_MESSAGES).to_numpy()[joins]]
    joins = joins[in_steps[job.joins["op"].to_numpy()[joins]]]
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
    of = host["segment"].to_numpy()
    waits = is_blocking & segments["call"].str.contains(_WAITS_FOR_GPU).to_numpy(dtype=bool)
    spans = ((of[last[end]] + 1, of[first[end + 1]] + 1) for end in ends.tolist() if len(of))
    return any(bool(waits[begin:until].any()) for begin, until in spans)


def _pass_of_op(ops: pd.DataFrame, passes: pd.DataFrame) -> np.ndarray:
    """Place in `passes` of each operation that computes in one, -1 for others."""
    starts = ops["start_ns"].to_numpy()
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
    ops, rank_of = job.joins["op"].to_numpy(), job.joins["rank"].to_numpy()
    own = [job.nodes[rank].piece.ops["stream"].to_numpy()[ops[held & (rank_of == rank)]] for rank in set(rank_of[held])]
    return bool(own) and all(len(np.unique(streams)) == 1 for streams in own)


def _is_message(job: Job, ranks: Sequence[int]) -> np.ndarray:
    held: np.ndarray = (job.joins["collective"].isin(OF_MESSAGES) & job.joins["rank"].isin(ranks)).to_numpy()
    return held
