"""Which schedule each pipeline follows, the bubble that it has by itself, and how long each stage waits."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, STEP_OF_LAUNCH, Result
from traceanalyzer.analyses.breakdown import Breakdown, Steps, complete_steps, shared_steps
from traceanalyzer.analyses.phases import ExposedCalls
from traceanalyzer.analyses.pipelines import orders, shape
from traceanalyzer.analyses.pipelines.orders import Pass
from traceanalyzer.analyses.pipelines.shape import (
    BACKWARD,
    FORWARD,
    INPUTS,
    WEIGHTS,
    PipelineMessages,
    action_at,
    actions,
    in_launch_order,
    sends_first,
)
from traceanalyzer.meaning.columns import Adds, Better, Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, nullable, rows_named, rows_where, table_of

# When each stage computes which microbatch.


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


def pipeline_schedule_per_rank(
    trace: RankTrace, pipeline_messages: pd.DataFrame, phase_of_op: np.ndarray
) -> pd.DataFrame:
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
        expected_bubble_pct: 100 · (S−1)/(vM+S−1), or that of the order of passes, or of DualPipe's formula, for
            schedules whose bubble depends on their lengths.
    """

    name: str | None = None
    stages_per_rank: int | None = None
    microbatches: int | None = None
    why_unknown: str | None = None
    expected_bubble_pct: float | None = None


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
    """
    wanted = list(steps)
    if not wanted:
        return Schedule(why_unknown=NO_STEPS)
    own = stretches[stretches["rank"].isin(order) & stretches["step"].isin(wanted)]
    is_numbered = len(own) > 0 and bool(own["virtual_stage"].notna().all())
    if is_numbered:
        found = _of_ranges(own, order, absent)
    else:
        sent = messages["rank"].isin(order) & messages["step"].isin(wanted) & messages["is_send"]
        found = _of_messages(rows_where(messages, sent), len(wanted), own, messages, order, absent)
    if found.name in OF_KNOWN_BUBBLE:
        ranks, passes = len(order), (found.stages_per_rank or 0) * (found.microbatches or 0)
        return replace(found, expected_bubble_pct=100.0 * (ranks - 1) / (passes + ranks - 1))
    if found.name == BOTH_WAYS and not is_numbered:
        return replace(found, expected_bubble_pct=_two_ways_pct(own, found.microbatches or 0, len(order)))
    return found


def _of_ranges(own: pd.DataFrame, order: list[int], absent: Collection[int]) -> Schedule:
    """From stretches that the schedule itself numbers by stage and microbatch."""
    here = [rank for rank in order if rank not in absent]
    stages = own.groupby("rank")["virtual_stage"].nunique().reindex(here, fill_value=0)
    first, last = ({*own.loc[own["virtual_stage"] == end, "rank"]} for end in own["virtual_stage"].agg(["min", "max"]))
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
    found = _ordered(own, order, absent, int(stages.iloc[0]), int(by_step.iloc[0]), folding)
    return found if absent else replace(found, expected_bubble_pct=played_pct(own))


def _of_messages(
    sent: pd.DataFrame, steps: int, own: pd.DataFrame, messages: pd.DataFrame, order: list[int], absent: Collection[int]
) -> Schedule:
    """From what the ranks send in some steps, where no ranges number their passes.

    Activations that a rank sends beyond those that it receives are those of a step's microbatches: M on the rank of
    the first stage. It sends v · M of them when each rank has v stages.
    """
    edges = sent[sent["direction"] == FORWARD].groupby(["rank", "peer", "step"]).size().groupby(["rank", "peer"])
    if sent.empty or sent["direction"].isna().any():
        found = Schedule(why_unknown=NO_DIRECTION)
    elif not len(edges) or (edges.size() != steps).any() or (edges.min() != edges.max()).any():
        found = Schedule(why_unknown=UNEVEN)
    else:
        found = _of_edges(edges.first(), own, messages, order, absent)
    if not found.microbatches:
        found = _two_ways(sent, messages, order) or found
    return Schedule(why_unknown=NOT_ALL) if absent and found.name not in OF_KNOWN_BUBBLE else found


def _two_ways_pct(own: pd.DataFrame, microbatches: int, ranks: int) -> float | None:
    """Of two ways DualPipe's (S/2 − 1)(F&B + B − 3W), F&B being F + B and gradients of weights half of B.

    F and B are the ranks' mean compute of a microbatch's forward and backward pass.
    """
    forward, backward = (float(own.loc[own["phase"] == phase, "compute_ns"].sum()) for phase in (FORWARD, BACKWARD))
    idle = (ranks / 2 - 1) * (forward + backward / 2) / microbatches
    return 100.0 * idle / (idle + forward + backward) if forward and backward else None


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
    own: pd.DataFrame, order: list[int], absent: Collection[int], per_rank: int, microbatches: int, folding: str | None
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


# How long each stage waits: the bubble as measured, and how even the stages are.


class Pipeline(Result):
    """One row for each rank that is a stage of a pipeline; none without send and receive calls that name peers."""

    title = "Pipeline stages"
    keys = ("rank",)
    derived = {"bubble_ns": "idle_ns + p2p_wait_ns", "bubble_pct": "bubble_ns / window_ns"}
    columns = declared(
        rank=RANK,
        pipeline="Ranks that send to each other, directly or not, form one pipeline.",
        stage="Position in it, in the order in which activations go; with several stages a rank, of its first one.",
        ranks=Column.count("Ranks of the pipeline.", adds=Adds.NONE, is_secondary=True),
        absent_ranks=(
            "Those of them that have no trace, by what the others send and receive; absent where all have one."
        ),
        basis="What the row is of: complete steps that all ranks share, or the whole capture.",
        steps="Number of those steps; absent for a whole capture.",
        window_ns="Length of that window.",
        compute_ns="Time in which at least one compute kernel runs.",
        idle_ns="Time in which nothing runs on the GPU.",
        p2p_wait_ns=(
            "Exposed communication of sends and receives in which they wait for a peer; absent where some could "
            "not be matched."
        ),
        bubble_ns=Column.spent("Idle + wait of point-to-point calls."),
        bubble_pct=Column.share("100 · bubble / window.", better=Better.LESS),
        schedule="Its schedule, as the order of its passes and messages shows; absent where they fit none.",
        stages_per_rank=Column.count(
            "Stages of the model on each rank; absent where that is not known.", adds=Adds.NONE
        ),
        microbatches=Column.count("Microbatches of a step; absent where that is not known.", adds=Adds.NONE),
        expected_bubble_pct=(
            "Expected, not measured: 100 · (S−1)/(vM+S−1) for S ranks, v stages a rank, M microbatches, of GPipe, "
            "1F1B and their interleaved forms. Of schedules whose bubble depends on the lengths of their passes "
            "(zero-bubble, V-shaped): the idle share of their order of passes, each as long as the mean of its "
            "kind, transfers free. Of pipelines of two ways whose passes the trace does not number: DualPipe's "
            "(S/2 − 1)(F&B + B − 3W), F&B being F + B and W half of B. Absent where neither is known."
        ),
        why_unknown="Why the schedule is not known.",
    )


def pipeline_across(
    pipeline_messages: PipelineMessages,
    pipeline_schedule: PipelineSchedule,
    exposed_calls: ExposedCalls,
    steps: Steps,
    breakdown: Breakdown,
) -> Pipeline:
    """Order the stages, and measure each over the complete steps that they share (else the whole window)."""
    here = sorted(breakdown.table["rank"])
    moves = shape.with_absent(pipeline_messages.table, here)
    every = shape.stages(moves)
    table = rows_where(every, every["rank"].isin(here))
    if table.empty:
        return Pipeline(table_of({name: pd.Series(dtype="Int64") for name in Pipeline.columns}))
    complete = complete_steps(steps.table)
    shared = shared_steps(
        complete[complete["rank"].isin(table["rank"])] if len(steps) else complete, set(table["rank"])
    )
    table = table.merge(_windows(steps.table, breakdown.table, shared), on="rank")
    stretches = exposed_calls.table
    stretches = stretches[stretches["step"].isin(shared)] if shared else stretches
    table["p2p_wait_ns"] = _waits(table, moves[["rank", "call"]].drop_duplicates(), stretches)
    table = table.sort_values(["pipeline", "stage"], ignore_index=True)
    return Pipeline(table.join(_schedules(every, here, moves, pipeline_schedule.table, shared), on="pipeline"))


def has_known_stages(table: pd.DataFrame) -> pd.Series:
    """Rows of `Pipeline` whose stage is known: no rank lacks a trace, or there are as many as in the longest pipeline.

    Of neighbours that both have no trace nobody tells that they send to each other: a pipeline falls in two there.
    """
    return table["absent_ranks"].isna() | (table["ranks"] == table["ranks"].max())


def _windows(steps: pd.DataFrame, breakdown: pd.DataFrame, shared: list[int]) -> pd.DataFrame:
    figures = ["window_ns", "compute_ns", "idle_ns"]
    if not shared:
        return breakdown[["rank", *figures]].assign(basis="whole capture", steps=pd.NA).astype({"steps": "Int64"})
    chosen = rows_where(steps, steps["step"].isin(shared))
    table = chosen.groupby("rank")[figures].sum().astype("Int64").reset_index()
    return table.assign(basis="steps " + ", ".join(map(str, shared)), steps=len(shared)).astype({"steps": "Int64"})


def _waits(table: pd.DataFrame, calls: pd.DataFrame, stretches: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """Exposed wait of each row's rank in these of its calls; absent where some could not be matched."""
    sums = stretches.merge(calls, on=["rank", "call"]).groupby("rank")[["wait_ns", "unmatched_ns"]].sum()
    sums = sums.reindex(table["rank"], fill_value=0)
    return sums["wait_ns"].astype("Int64").where(sums["unmatched_ns"] == 0).array


def _schedules(
    every: pd.DataFrame, here: list[int], moves: pd.DataFrame, stretches: pd.DataFrame, shared: list[int]
) -> pd.DataFrame:
    """What is known of each pipeline's schedule, by pipeline."""
    rows = {}
    for number, own in every.sort_values("stage").groupby("pipeline"):
        order = own["rank"].tolist()
        absent = [rank for rank in order if rank not in here]
        known = {"ranks": len(order), "absent_ranks": ",".join(map(str, absent)) or None}
        rows[number] = known | asdict(schedule_of(moves, stretches, order, shared, absent))
    types = {"ranks": "Int64", "stages_per_rank": "Int64", "microbatches": "Int64", "expected_bubble_pct": "Float64"}
    return pd.DataFrame.from_dict(rows, orient="index").astype(types).rename(columns={"name": "schedule"})


_OF_SCHEDULE = ("schedule", "stages_per_rank", "microbatches", "basis", "expected_bubble_pct", "why_unknown")
"""Columns that all stages of a pipeline have alike."""


class Pipelines(Result):
    """One row for each pipeline."""

    title = "Pipelines"
    keys = ("pipeline",)
    stored = ("bubble_ns", "window_ns", "compute_std_ns", "compute_mean_ns")
    derived = {"bubble_pct": "bubble_ns / window_ns", "compute_cv": "compute_std_ns / compute_mean_ns"}
    columns = declared(
        pipeline="Number.",
        ranks=Column.text("Its ranks in order of stage, as far as they have a trace."),
        stages=Column.count(
            "Stages of the model: ranks, with a trace or without, × stages a rank; ranks, where those are not known.",
            adds=Adds.NONE,
        ),
        **{name: Pipeline.columns[name] for name in _OF_SCHEDULE},
        bubble_pct=Column.share(
            "100 · sum of the stages' bubbles / sum of their windows; absent without waits.", better=Better.LESS
        ),
        compute_cv=Column.number(
            "Coefficient of variation of the stages' compute (population, ddof = 0).", label="compute std / mean"
        ),
    )


def pipelines_across(pipeline: Pipeline) -> Pipelines:
    """Summarise the stages of each pipeline."""
    if not len(pipeline):
        return Pipelines.without_rows()
    frame = pipeline.to_frame()
    stages = frame.groupby("pipeline")
    compute = frame["compute_ns"].astype("int64").groupby(frame["pipeline"])
    table = stages[[*_OF_SCHEDULE]].first().assign(
        ranks=stages["rank"].agg(lambda own: ",".join(map(str, own))),
        stages=stages["ranks"].first() * stages["stages_per_rank"].first().fillna(1),
        window_ns=stages["window_ns"].sum(),
        compute_std_ns=compute.std(ddof=0),
        compute_mean_ns=compute.mean(),
        bubble_ns=stages["bubble_ns"].agg(lambda own: own.sum(skipna=False)),
    )  # fmt: skip
    return Pipelines(table.reset_index())
