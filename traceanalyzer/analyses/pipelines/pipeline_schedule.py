"""Which schedule each pipeline follows, and the bubble it has by itself."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, STEP_OF_LAUNCH, Result
from traceanalyzer.analyses.pipelines import orders
from traceanalyzer.analyses.pipelines.orders import Pass
from traceanalyzer.analyses.pipelines.shape import (
    BACKWARD,
    FORWARD,
    INPUTS,
    WEIGHTS,
    action_at,
    actions,
    in_launch_order,
    sends_first,
)
from traceanalyzer.meaning.columns import Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    nullable,
    rows_named,
    rows_where,
)


class PipelineSchedule(Result):
    """One row for each rank and stretch of forward or backward compute of one microbatch, in order of launch."""

    title = "Pipeline schedule"
    is_detail = True
    keys = ("rank", "slot")
    columns = declared(
        rank=RANK,
        slot=Column.ident("Position among the rank's stretches."),
        step=STEP_OF_LAUNCH,
        phase="forward or backward; where the schedule's ranges tell, backward of inputs and backward of weights.",
        virtual_stage="Stage of the model, as the schedule's ranges number it; absent without such ranges.",
        microbatch=(
            "The microbatch's number, as the schedule's ranges have it; else how many stretches of that phase the "
            "step had before: its number when each is computed once, in order."
        ),
        is_beside="Whether the schedule runs it in one action with a pass of the other direction.",
        start_ns="Start of its first compute kernel.",
        end_ns="End of its last one.",
        compute_ns="Sum of its kernels' durations.",
        operations="Its compute kernels.",
    )


def per_rank(trace: RankTrace, pipeline_messages: pd.DataFrame, phase_of_op: np.ndarray) -> pd.DataFrame:
    """Cut the rank's forward and backward kernels, in order of launch, into stretches of one microbatch.

    By the schedule's own ranges, else where the phase changes or the rank sends or receives. Only for ranks with send
    and receive calls that name their peers; operations without a launch are left out.
    """
    if pipeline_messages.empty:
        return pd.DataFrame()
    ops = in_launch_order(trace, array_of(pipeline_messages, "gpu_op"), phase_of_op)
    found = actions(trace)
    has_ranges = bool(found["is_compute"].any())
    marked = _by_ranges(trace, ops, found) if has_ranges else _by_phase(ops)
    if marked.empty:
        return pd.DataFrame()
    marks = marked[["phase", "step_row", "cut"]]
    # Kernels of two of a schedule's actions may mix; else a stretch is a run of equal marks.
    is_new = (marks != marks.shift()).any(axis=1)
    slot = pd.factorize(pd.MultiIndex.from_frame(marks))[0] if has_ranges else is_new.cumsum().to_numpy() - 1
    groups = marked.assign(length=marked["end_ns"] - marked["start_ns"]).groupby(slot)
    table = groups[["phase", "step_row", "virtual_stage", "microbatch", "is_beside"]].first()
    table = table.assign(start_ns=groups["start_ns"].min(), end_ns=groups["end_ns"].max(),
                         compute_ns=groups["length"].sum(), operations=groups.size())  # fmt: skip
    ordinal = table.groupby(["step_row", "phase"]).cumcount()
    table["microbatch"] = table["microbatch"].fillna(ordinal.astype("Int64"))
    steps = np.append(trace.steps["step"].to_numpy(np.int64), 0)
    table["step"] = nullable(steps[table["step_row"]], (table["step_row"] == NONE).to_numpy())
    return table.drop(columns="step_row").rename_axis("slot").reset_index()


def _by_phase(ops: pd.DataFrame) -> pd.DataFrame:
    """Forward and backward kernels; a send or receive between two of them cuts.

    The last backward pass of a step is one with its end, where that comes after the last send: gradients are reduced.
    Of backward stretches there is then one more than of forward ones.
    """
    held = rows_where(ops, ops["phase"].isin([FORWARD, BACKWARD]))
    absent = pd.array([pd.NA] * len(held), dtype="Int64")
    marked = held.assign(virtual_stage=absent, microbatch=absent, is_beside=False)
    stretches = marked[["step_row", "phase", "cut"]].drop_duplicates()
    for step_row, own in stretches.groupby("step_row"):
        last, end = own.iloc[-2:]["cut"] if len(own) > 1 else (0, 0)
        is_back = own["phase"] == BACKWARD
        if is_back.iloc[-2:].all() and 2 * is_back.sum() == len(own) + 1:
            is_end = (marked["step_row"] == step_row) & (marked["phase"] == BACKWARD) & (marked["cut"] == end)
            marked.loc[is_end, "cut"] = last
    return marked


def _by_ranges(trace: RankTrace, ops: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Kernels launched inside an action of the schedule; each action is a stretch, or one a pass where it has two."""
    found = found[found["is_compute"]].reset_index(drop=True)
    row = action_at(found, array_of(trace.api_calls, "start_ns")[ops["launch"]])
    is_held = (row >= 0) & rows_named(ops, "kind", "compute")
    held, own = ops[is_held], found.iloc[row[is_held]]
    is_beside = ~own["back"].array.isna()
    is_back = is_beside & (held["phase"] == BACKWARD).to_numpy()
    return held.assign(
        phase=own["what"].where(~is_back, own["back"]).array,
        cut=2 * row[is_held] + is_back,
        virtual_stage=own["stage"].astype("Int64").where(~is_back, own["back_stage"]).array,
        microbatch=own["microbatch"].astype("Int64").where(~is_back, own["back_microbatch"]).array,
        is_beside=is_beside,
    )


KINDS: Mapping[str, str] = {FORWARD: orders.FORWARD, BACKWARD: orders.BACKWARD,
                           INPUTS: orders.OF_INPUTS, WEIGHTS: orders.OF_WEIGHTS}  # fmt: skip
"""Phases as kinds of passes."""


def played_pct(passes: pd.DataFrame) -> float | None:
    """100 · idle / (ranks · makespan) of a step whose passes run in their order, each as long as the mean of its kind.

    A forward pass and the backward one beside it are one action: what they make is sent when both are done. The order
    is that of the first step of `passes`, rows of `PipelineSchedule`. `None` where the passes cannot run in it.
    """
    kinds = passes["phase"].map(KINDS)
    lengths = passes["compute_ns"].groupby(kinds).mean().to_dict()
    first = passes.assign(kind=kinds)[passes["step"] == passes["step"].min()].sort_values(["rank", "slot"])
    is_second = first["is_beside"] & (first.groupby("rank")["is_beside"].cumsum() % 2 == 0)
    queues: dict[int, list[tuple[Pass, ...]]] = {}
    for (rank, _), own in first.groupby(["rank", (~is_second).cumsum()]):
        names = own[["kind", "virtual_stage", "microbatch"]].astype("object").itertuples(index=False, name=None)
        queues.setdefault(rank, []).append((*names,))
    action_of = {one: action for own in queues.values() for action in own for one in action}
    last = int(first["virtual_stage"].max())

    def ends(action: tuple[Pass, ...], end: float, ended: Mapping[tuple[Pass, ...], float]) -> float | None:
        for one in action:
            needed = [action_of.get(each, ()) for each in orders.needs(one, last, action_of) if each not in action]
            if not {*needed} <= ended.keys():
                return None
            end = max([end, *(ended[each] for each in needed)]) + float(lengths[one[0]])
        return end

    ended = orders.in_order(queues, ends)
    makespan = max(ended.values()) if ended else 0.0
    busy = sum(lengths[kind] for kind, _, _ in action_of)
    return 100.0 * (1 - busy / (len(queues) * makespan)) if makespan > 0 else None


ONE, GPIPE, ONE_F_ONE_B = "one microbatch", "GPipe", "1F1B"
INTERLEAVED, LOOPED = "interleaved 1F1B", "looped GPipe"
ZERO_BUBBLE, V_SHAPED, BOTH_WAYS = "zero-bubble", "V-shaped", "both ways (DualPipe)"
V_SHAPED_BESIDE = "V-shaped, forward beside backward (DualPipeV)"

OF_KNOWN_BUBBLE = (ONE, GPIPE, ONE_F_ONE_B, INTERLEAVED, LOOPED)
"""Schedules whose bubble is (S−1)/(vM+S−1) of S ranks with v stages each and M microbatches, passes being even."""

LEAST_TWO_WAYS = 4
"""Ranks from which on even exchanges between neighbours are a pipeline of two ways: it has inner ranks."""

NO_DIRECTION = "forward and backward are not separated in the trace"
NO_STEPS = "no complete step that all its ranks share"
UNEVEN = "its steps do not send alike"
NOT_ALL = "not all of its ranks have a trace"
NO_PATTERN = "its messages fit no schedule that is known"
NO_ORDER = "its order of forward and backward passes fits no schedule that is known"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is known of a pipeline's schedule; `None` for what is not, and then `why_unknown` says why.

    Attributes:
        played_pct: bubble of the order of its passes, where the trace numbers them (see `played`); of two ways without
            numbers that of DualPipe's formula.
    """

    name: str | None = None
    stages_per_rank: int | None = None
    microbatches: int | None = None
    why_unknown: str | None = None
    played_pct: float | None = None


def schedule_of(
    messages: pd.DataFrame,
    stretches: pd.DataFrame,
    order: list[int],
    steps: Iterable[int],
    absent: Collection[int] = (),
) -> Schedule:
    """The schedule of one pipeline, `order` being its ranks by stage, from the messages and compute of some steps.

    Of `absent` ones, which have no trace, there are the messages that others send them or receive; what the order of
    a rank's work shows comes from the others alone.

    Activations that a rank sends beyond those that it receives are those of a step's microbatches: M on the rank of
    the first stage. It sends v · M of them when each rank has v stages.
    """
    wanted = list(steps)
    if not wanted:
        return Schedule(why_unknown=NO_STEPS)
    own = stretches[stretches["rank"].isin(order) & stretches["step"].isin(wanted)]
    named = _of_ranges(own, order, absent)
    if named:
        return replace(named, played_pct=None) if absent else named
    held = rows_where(messages, messages["rank"].isin(order) & messages["step"].isin(wanted) & messages["is_send"])
    edges = held[held["direction"] == FORWARD].groupby(["rank", "peer", "step"]).size().groupby(["rank", "peer"])
    if held.empty or held["direction"].isna().any():
        found = Schedule(why_unknown=NO_DIRECTION)
    elif not len(edges) or (edges.size() != len(wanted)).any() or (edges.min() != edges.max()).any():
        found = Schedule(why_unknown=UNEVEN)
    else:
        found = _of_edges(edges.first(), own, messages, order, absent)
    if not found.microbatches:
        found = _two_ways(held, messages, order) or found
    if absent and found.name not in OF_KNOWN_BUBBLE:
        return Schedule(why_unknown=NOT_ALL)
    return _with_two_ways_bubble(found, own, order)


def expected_pct(schedule: Schedule, ranks: int) -> float | None:
    """100 · (S−1)/(vM+S−1), or that of the order of passes for schedules whose bubble depends on their lengths.

    `None` where neither is known.
    """
    if schedule.name not in OF_KNOWN_BUBBLE:
        return schedule.played_pct
    if not schedule.microbatches or not schedule.stages_per_rank:
        return None
    return 100.0 * (ranks - 1) / (schedule.stages_per_rank * schedule.microbatches + ranks - 1)


def _of_ranges(own: pd.DataFrame, order: list[int], absent: Collection[int]) -> Schedule | None:
    """From stretches that the schedule itself numbers by stage and microbatch."""
    if own.empty or own["virtual_stage"].isna().any():
        return None
    here = [rank for rank in order if rank not in absent]
    stages = own.groupby("rank")["virtual_stage"].nunique().reindex(here, fill_value=0)
    first, last = (
        set(own.loc[own["virtual_stage"] == end, "rank"]) for end in own["virtual_stage"].agg(["min", "max"])
    )
    # Stages that run back along the ranks: the first rank then has the first stage and the last.
    folding = V_SHAPED if len(here) > 1 and first == last else None
    if own.groupby("virtual_stage")["rank"].nunique().max() > 1:
        folding = BOTH_WAYS
        # Microbatches that enter at the last rank have numbers beyond those that enter at the first one.
        is_back = (own["virtual_stage"] != own["rank"].map(order.index)).to_numpy(dtype=bool)
        is_apart = own[is_back]["microbatch"].min() > own[~is_back]["microbatch"].max()
        beyond = 0 if is_apart else int(own["microbatch"].max()) + 1
        own = own.assign(microbatch=own["microbatch"] + beyond * is_back)
    by_step = own.groupby("step")["microbatch"].nunique()
    if stages.min() != stages.max() or by_step.min() != by_step.max():
        return Schedule(why_unknown=UNEVEN)
    per_rank, microbatches = int(stages.iloc[0]), int(by_step.iloc[0])
    return replace(_ordered(own, order, absent, per_rank, microbatches, folding), played_pct=played_pct(own))


def _with_two_ways_bubble(schedule: Schedule, own: pd.DataFrame, order: list[int]) -> Schedule:
    """Of two ways with DualPipe's (S/2 − 1)(F&B + B − 3W), F&B being F + B and gradients of weights half of B.

    F and B are the ranks' mean compute of a microbatch's forward and backward pass.
    """
    forward, backward = (float(own.loc[own["phase"] == phase, "compute_ns"].sum()) for phase in (FORWARD, BACKWARD))
    if schedule.name != BOTH_WAYS or not schedule.microbatches or not forward or not backward:
        return schedule
    idle = (len(order) / 2 - 1) * (forward + backward / 2) / schedule.microbatches
    return replace(schedule, played_pct=100.0 * idle / (idle + forward + backward))


def _of_edges(
    edges: pd.Series, own: pd.DataFrame, messages: pd.DataFrame, order: list[int], absent: Collection[int]
) -> Schedule:
    """From the number of activations that each rank sends to each other one in a step.

    Where every rank receives as many as it sends each has two stages, of one way there and back, or of two ways: then
    each end feeds its own half of the microbatches.
    """
    sent, received = (edges.groupby(end).sum().reindex(order, fill_value=0) for end in ("rank", "peer"))
    surplus = sent - received
    microbatches, begins = int(surplus.iloc[0]), sends_first(messages) & {*order}
    if (surplus == 0).all() and len(begins) in {1, 2}:
        if len(begins) == 1:
            return Schedule(V_SHAPED, 2, int(sent.iloc[0]))
        return Schedule(BOTH_WAYS, 2, int(sent.iloc[0] + sent.iloc[-1]))
    is_path = surplus.iloc[-1] == -microbatches and (surplus.iloc[1:-1] == 0).all() and microbatches > 0
    per_rank, rest = divmod(int(sent.iloc[0]), microbatches) if is_path else (0, 1)
    if rest:
        return Schedule(why_unknown=NO_PATTERN)
    return _ordered(own, order, absent, per_rank, microbatches, None)


def _two_ways(held: pd.DataFrame, messages: pd.DataFrame, order: list[int]) -> Schedule | None:
    """Of sends that go out together, so that nothing tells activations from gradients: microbatches enter at both ends.

    Only the two ends begin with a send, only neighbours talk, and all send as much: an activation of one half of the
    microbatches and a gradient of the other half each.
    """
    counts = held.groupby(["rank", "peer", "step"]).size()
    place = {rank: number for number, rank in enumerate(order)}
    are_neighbours = all(abs(place[rank] - place.get(peer, -9)) == 1 for rank, peer, _ in counts.index)
    is_whole = len(counts) == 2 * (len(order) - 1) * held["step"].nunique()
    if not are_neighbours or not is_whole or len(order) < LEAST_TWO_WAYS or counts.min() != counts.max():
        return None
    begins = sends_first(messages) & {*order}
    return Schedule(BOTH_WAYS, 2, int(counts.iloc[0])) if begins == {order[0], order[-1]} else None


def _ordered(
    own: pd.DataFrame,
    order: list[int],
    absent: Collection[int],
    per_rank: int,
    microbatches: int,
    folding: str | None,
) -> Schedule:
    """Name the schedule by the order of its passes."""
    passes = {
        rank: [each["phase"].tolist() for _, each in steps.groupby("step")] for rank, steps in own.groupby("rank")
    }
    is_complete = bool(passes) and set(passes) == set(order) - set(absent)
    name = _name(passes, order, per_rank, microbatches) if is_complete else None
    if folding == V_SHAPED and own["is_beside"].any():
        name = V_SHAPED_BESIDE
    elif folding == V_SHAPED and name == ZERO_BUBBLE:
        name = f"{ZERO_BUBBLE}, {V_SHAPED}"
    else:
        name = folding or name
    return Schedule(name, per_rank, microbatches, None if name else NO_ORDER)


def _name(passes: Mapping[int, list[list[str]]], order: list[int], per_rank: int, microbatches: int) -> str | None:
    steps = [step for of_rank in passes.values() for step in of_rank]
    # More backward passes than there are: gradients of weights are computed apart, to fill bubbles.
    if any(WEIGHTS in step or len(step) - step.count(FORWARD) > per_rank * microbatches for step in steps):
        return ZERO_BUBBLE
    if microbatches == 1 and per_rank == 1:
        return ONE
    is_all_first = all(FORWARD not in step[_warm(step) :] for step in steps)
    if per_rank > 1:
        return LOOPED if is_all_first else INTERLEAVED
    if is_all_first and microbatches > len(order):
        return GPIPE
    warm = [min(len(order) - stage, microbatches) for stage in range(len(order))]
    if all(_warm(step) == warm[stage] for stage, rank in enumerate(order) for step in passes.get(rank, ())):
        return ONE_F_ONE_B
    return GPIPE if is_all_first else None


def _warm(step: list[str]) -> int:
    """Forward passes before the first backward one."""
    return next((place for place, phase in enumerate(step) if phase != FORWARD), len(step))
