"""Findings about pipelines' bubbles and messages."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.step_budget import OPERATOR, WhatRan
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.analyses.pipelines.pipeline import Pipeline, Pipelines
from traceanalyzer.analyses.pipelines.pipeline_schedule import GPIPE, INTERLEAVED, OF_KNOWN_BUBBLE, ONE_F_ONE_B
from traceanalyzer.analyses.replay.changes import BACKWARD, FORWARD, IDEAL, Change, order_of
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.replay.schedule import Cost, Outside, SchedulePlayLengths, is_on_one_stream, step_ns
from traceanalyzer.errors import UsageError
from traceanalyzer.findings.basis import LEAST_GAIN_PCT, Title, Won, count_of_steps, plain, severity
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.link_rates import LOW_PEAK_PCT, SLOW_LINKS, healthy_rate
from traceanalyzer.findings.stragglers.stragglers import HOSTS, of_lead, said
from traceanalyzer.findings.stragglers.wording import UNEVEN_STAGES, pipeline_name
from traceanalyzer.findings.uneven_stages import evidence_of, its_stages, the_others, uneven_alike
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.columns import numbers, time_text
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import Severity, rate
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, rows_where

# What a pipeline loses where all messages of a rank follow each other on one stream.


_ORDERS: Mapping[str, str] = MappingProxyType({GPIPE: "gpipe", ONE_F_ONE_B: "1f1b", INTERLEAVED: "interleaved"})

_WORTH = 0.02
"""Of the step: what streams of their own gain less than is not said."""


def held_up_ns(row: Mapping[str, Any], ranks: Sequence[int], ideal: Gain | None, replay: Replay) -> int:
    """What the ideal step would be shorter by, had messages of each neighbour and direction a stream of their own.

    A receive that waits holds up the sends behind it. The schedule is played with even stages, a backward pass twice as
    long as a forward one, hosts and messages that take no time: once with all of a rank's messages in one order, once
    with those of each peer and direction. 0 where they have streams of their own or the schedule is another one.
    """
    name = _ORDERS.get(row["schedule"] or "")
    if ideal is None or name is None or replay.engine is None or not is_on_one_stream(replay.engine.job, ranks):
        return 0
    chunks = row["stages_per_rank"] or 1
    try:
        order = order_of(name, len(ranks), row["microbatches"], chunks)
    except UsageError:  # microbatches that fill no groups: an order that is not known
        return 0
    of_pass = {
        (kind, stage): Cost(gpu_ns, 0.0, 0.0)
        for kind, gpu_ns in ((FORWARD, 1.0), (BACKWARD, 2.0))
        for stage in range(len(ranks) * chunks)
    }
    outside = dict.fromkeys(range(len(ranks)), Outside(Cost(0.0, 0.0, 0.0), is_blocking=True))
    together, apart = (
        step_ns(order, SchedulePlayLengths(of_pass, outside, 0.0, has_one_channel=one)) for one in (True, False)
    )
    share = 1 - apart / together if together and apart else 0.0
    return round(ideal.after_ns * share) if share >= _WORTH else 0


# Work of a pipeline's stage that no microbatch repeats: all other stages stand still meanwhile.


OUTSIDE_PCT = 3.0
"""Of a step."""

_OF_ONE = 2
"""Messages of an end stage that one microbatch takes: it is sent on, its gradient comes back."""


class OutsideMicrobatchesOutside(Struct, frozen=True):
    """Kernels of a rank that run only before a step's first exchange with another stage.

    Attributes:
        ns: their time, a step.
        kernels: their names, longest first.
        operator: what launched most of them; absent without.
        by_step: their time by step.
    """

    ns: float
    kernels: tuple[str, ...]
    operator: str | None
    by_step: Mapping[int, int]


def outside_microbatches(
    pipeline: Pipeline,
    what_ran: WhatRan,
    replay: Replay,
    *,
    outside_pct: float = OUTSIDE_PCT,
) -> list[Finding]:
    """A stage computes over 3 % of a step before its first exchange what no microbatch repeats.

    It gains over 1 % of a step to be without, or would once hosts take no time: then it is part of its pipeline's
    finding. Of a single microbatch none could repeat it.
    """
    found = []
    stages = pipeline.table if len(pipeline) else pd.DataFrame(columns=["rank", "pipeline"])
    stages = stages[_has_several(stages)] if len(stages) else stages
    for rank, number in stages[["rank", "pipeline"]].itertuples(index=False):
        costly = costly_outside(replay, int(rank), outside_pct)
        if costly is not None:
            found.append(_finding(costly, what_ran.table, int(rank), int(number)))
    return sorted(found, key=lambda item: -(item.gain_ns or 0))


def _has_several(stages: pd.DataFrame) -> pd.Series:
    """Stages of several microbatches; where that is not known, of more messages than one needs there and back."""
    messages = stages["p2p_calls"].astype("Float64") / stages["steps"].astype("Float64").fillna(1.0)
    several = (stages["microbatches"].astype("Float64") > 1).fillna(messages > _OF_ONE)
    return is_true(several)


def _finding(costly: "Costly", work: pd.DataFrame, rank: int, number: int) -> Finding:
    own, gain = costly.own, costly.gain
    without = (
        f"hidden behind the hosts now, it costs {time_text(costly.behind_hosts_ns)}{rate(gain.steps)} without these"
        if costly.is_hidden
        else Title(f"without it, {gain.whole} is ", Won.recorded(gain))
    )
    return Finding(
        severity="low" if costly.is_hidden else severity(gain.gain_pct),
        title=Title(
            f"Rank {rank} computes {time_text(own.ns)} a step before its first microbatch's exchange that no "
            f"microbatch repeats, most of it {_called(own, work, rank)}: the others stand still meanwhile; ",
            without,
            ".",
        ),
        evidence=plain(pd.DataFrame({"step": list(own.by_step), "outside_ns": list(own.by_step.values())})),
        recommendation=f"Take it out of the step on rank {rank}, do it while the stage waits, or move layers from this "
        "stage to the others.",
        caveat="Kernels of names that no later part of the step has; an optimizer or loss after the last exchange is "
        "not counted.",
        **gained(gain),
        ranks=(rank,),
        cause="compute",
        table="pipeline_schedule",
        about=None if costly.is_hidden else work_outside(rank),
        part_of=pipeline_name(number) if costly.is_hidden else None,
    )


class Costly(Struct, frozen=True):
    """Such work that costs the job something: what it gains now, and what once hosts take no time."""

    own: OutsideMicrobatchesOutside
    gain: Gain
    behind_hosts_ns: int

    @property
    def is_hidden(self) -> bool:
        """Whether it gains next to nothing as recorded."""
        return self.gain.gain_pct < LEAST_GAIN_PCT


def costly_outside(replay: Replay, rank: int, least_pct: float) -> Costly | None:
    """Such work of the rank and what the job gains without it; `None` where either is small."""
    if replay.engine is None or rank not in replay.engine.job.nodes or not replay.engine.windows.has_steps:
        return None
    own = outside(replay, rank)
    if own is None or 100 * own.ns < least_pct * replay.engine.before_ns:
        return None
    without = [Change("kernel", 0.0, frozenset({rank}), name=name) for name in own.kernels]
    gain, hosts, both = replay.engine.gains([tuple(without), (Change("host"),), (Change("host"), *without)])
    behind_ns = hosts.after_ns - both.after_ns if replay.engine.has_hosts else 0
    costly = Costly(own, gain, behind_ns)
    return costly if 100 * max(gain.gain_ns, behind_ns) >= LEAST_GAIN_PCT * gain.before_ns else None


def work_outside(rank: int) -> str:
    """How findings about such work are called."""
    return f"work of rank {rank} outside microbatches"


def outside(replay: Replay, rank: int) -> OutsideMicrobatchesOutside | None:
    """Compute of the rank's complete steps that runs only before the first exchange; `None` where there is none."""
    engine = replay.engine
    if engine is None:
        return None
    ops = engine.job.nodes[rank].piece.ops
    steps = engine.windows.table["step"].dropna().astype("int64").unique()
    is_own = _is_outside(ops, steps)
    if not is_own.any():
        return None
    own = rows_where(ops, is_own)
    lengths = own["duration_ns"].groupby(own["name"].astype("object")).sum().sort_values(ascending=False)
    operators = own["duration_ns"].groupby(own["operator"].astype("object")).sum()
    by_step = own["duration_ns"].groupby(own["step"]).sum()
    return OutsideMicrobatchesOutside(
        float(own["duration_ns"].sum()) / len(steps),
        tuple(lengths.index[: int(np.searchsorted(lengths.cumsum(), 0.98 * lengths.sum())) + 1]),
        str(operators.idxmax()) if len(operators) else None,
        {int(step): int(ns) for step, ns in by_step.items()},
    )


def _is_outside(ops: pd.DataFrame, steps: np.ndarray) -> np.ndarray:
    """Compute before a step's first message, by kernels that run between no messages of these steps."""
    step, place = array_of(ops, "step"), array_of(ops, "launch")
    is_held = np.isin(step, steps) & (place != NONE)
    message = is_held & ops["collective"].isin((*POINT_TO_POINT, "send_recv")).to_numpy()
    # In the order of launches: a message may be received early, on a stream of its own.
    numbers, of_step = np.unique(step, return_inverse=True)
    first, last = np.full(len(numbers), _NEVER), np.full(len(numbers), NONE)
    np.minimum.at(first, of_step[message], place[message])
    np.maximum.at(last, of_step[message], place[message])
    is_compute = is_held & (last != NONE)[of_step] & (ops["kind"] == "compute").to_numpy()
    is_before = is_compute & (place < first[of_step])
    if not is_before.any():
        return is_before
    is_between = is_compute & (place >= first[of_step]) & (place <= last[of_step])
    names, _ = pd.factorize(ops["name"])
    return is_before & ~np.isin(names, names[is_between])


_NEVER = np.iinfo(np.int64).max


def _called(own: OutsideMicrobatchesOutside, work: pd.DataFrame, rank: int) -> str:
    """The operator with its shapes, where one takes about as long; else the kernel."""
    if own.operator is None:
        return short_name(own.kernels[0])
    held = work[(work["rank"] == rank) & (work["what"] == OPERATOR) & work["step"].isin(own.by_step)]
    held = held[held["name"].str.startswith(own.operator)]
    if held.empty:
        return own.operator
    mean = held.groupby("name")["total_ns"].sum() / max(len(own.by_step), 1)
    return str((mean - own.ns).abs().idxmin())


# A rule about pipelines whose bubble is larger than their schedule explains.


BUBBLE_PCT = 10.0
BEYOND_EXPECTED_PCT = 5.0
_OWN_STREAMS = (
    "Give messages to each neighbour, and each direction, a stream of their own: a process group (communicator) "
    "for each, or calls that are not batched with those of other peers."
)
_OF_HOSTS = 0.8
"""Of what an ideal pipeline gains: when hosts alone gain that, they are what its stages wait for."""


def pipeline_bubble(
    pipelines: Pipelines,
    pipeline: Pipeline,
    episodes: Episodes,
    replay: Replay,
    collectives: Collectives,
    *,
    bubble_pct: float = BUBBLE_PCT,
    outside_pct: float = OUTSIDE_PCT,
    uneven_stages_times: float = UNEVEN_STAGES,
    low_peak_pct: float = LOW_PEAK_PCT,
) -> list[Finding]:
    """A bubble, and waits in collectives among stages, of over 10 % of the stages' time.

    Says what the schedule alone would cost where that is known.

    It is part of what is said of a late rank when a stage makes the others wait by its own doing, and of slow messages
    that would gain most of it at a healthy rate. Pipelines of one
    schedule that nothing of their own explains are one finding, of the one that waits most.
    """
    waiting = [row for row in pipelines.rows() if (_waits_pct(row) or 0.0) >= bubble_pct]
    causes = {row["pipeline"]: _cause(row["pipeline"], pipeline, episodes, replay, outside_pct) for row in waiting}
    ideal = _ideal(replay)
    elsewhere = _late_elsewhere(episodes, ideal) or _slow_messages(collectives, replay, ideal, low_peak_pct)
    elsewhere = elsewhere or (HOSTS if _waits_for_hosts(replay, ideal) else None)
    together = uneven_alike(pipelines, pipeline.to_frame(), uneven_stages_times)
    uneven = {row["pipeline"]: rows[0]["pipeline"] for rows in together for row in rows}
    alike: dict[object, list[Mapping[str, Any]]] = {}
    for row in sorted(waiting, key=lambda row: -(_waits_pct(row) or 0.0)):
        number = row["pipeline"]
        own = number if causes[number] else uneven.get(number, (row["schedule"], row["stages"], row["microbatches"]))
        alike.setdefault(own, []).append(row)
    return [
        _bubble(first, _stages(pipeline, first), causes[first["pipeline"]], replay, elsewhere, others, uneven)
        for first, *others in alike.values()
    ]


def _ideal(replay: Replay) -> Gain | None:
    """What all pipelines gain with no more bubble than their schedules'; `None` where their stages are not known."""
    has_stages = replay.engine is not None and replay.engine.ranks_of_stages
    return gain_of(replay, Change("stage", IDEAL)) if has_stages else None


def _waits_pct(row: Mapping[str, Any]) -> float | None:
    """All that its stages wait for each other: the bubble, and collectives among them; `None` without the former."""
    return None if row["bubble_pct"] is None else row["bubble_pct"] + (row["collective_wait_pct"] or 0.0)


def _stages(pipeline: Pipeline, row: Mapping[str, Any]) -> pd.DataFrame:
    frame = pipeline.to_frame()
    return frame[frame["pipeline"] == row["pipeline"]]


def _cause(number: int, pipeline: Pipeline, episodes: Episodes, replay: Replay, outside_pct: float) -> str | None:
    """The late ranks of the pipeline that cost it most, or a stage's work that no microbatch repeats."""
    stages = rows_where(pipeline.table, pipeline.table["pipeline"] == number)
    own = set(stages["rank"])
    repeats = not (stages["microbatches"] == 1).any()
    extra = [(found.gain.gain_ns, int(rank)) for rank in own if repeats and
             (found := costly_outside(replay, int(rank), outside_pct)) and not found.is_hidden]  # fmt: skip
    if extra:
        return work_outside(max(extra)[1])
    late = [row for row in said(episodes) if own & {*numbers(row["ranks"])}]
    late = [row for row in late if row["gain_ns"] is not None]  # else it is of no step that means are taken of
    return of_lead(episodes, late[0]) if late else None


def _waits_for_hosts(replay: Replay, ideal: Gain | None) -> bool:
    """Whether hosts that take no time gain nearly what an ideal pipeline does."""
    hosts = gain_of(replay, Change("host"))
    return ideal is not None and hosts is not None and hosts.gain_ns >= _OF_HOSTS * ideal.gain_ns > 0


def _late_elsewhere(episodes: Episodes, ideal: Gain | None) -> str | None:
    """A late rank of any pipeline, which gains most of what ideal pipelines would: all others wait for it, too."""
    late = [row for row in said(episodes) if row["gain_ns"] is not None]
    first = max(late, key=lambda row: row["gain_ns"], default=None)
    if first is None or ideal is None or first["gain_ns"] < _OF_HOSTS * ideal.gain_ns:
        return None
    return of_lead(episodes, first)


def _slow_messages(collectives: Collectives, replay: Replay, ideal: Gain | None, low_peak_pct: float) -> str | None:
    """Slow messages, which gain most of what ideal pipelines would at a healthy rate."""
    faster = healthy_rate(collectives, MESSAGES, low_peak_pct) if len(collectives) else None
    gain = gain_of(replay, faster) if faster else None
    is_most = gain is not None and ideal is not None and gain.gain_ns >= _OF_HOSTS * ideal.gain_ns > 0
    return SLOW_LINKS if is_most else None


def _bubble(
    row: Mapping[str, Any],
    stages: pd.DataFrame,
    cause: str | None,
    replay: Replay,
    elsewhere: str | None,
    others: Sequence[Mapping[str, Any]],
    uneven: Mapping[int, int],
) -> Finding:
    ideal = _ideal(replay)
    held_ns = held_up_ns(row, stages.sort_values("stage")["rank"].tolist(), ideal, replay)
    measured, expected = row["bubble_pct"], row["expected_bubble_pct"]
    worst = stages.loc[stages["bubble_ns"].astype("int64").idxmax()]
    return Finding(
        severity=_severity(row, ideal, held_ns),
        title=f"The pipeline of ranks {row['ranks']} waits {measured:.0f} % of its time{_in_collectives(row)}"
        f"{_schedule(row)}, most on rank {worst['rank']}: {worst['bubble_pct']:.0f} %{_beside(others)}."
        f"{_of_stream(held_ns, ideal)}",
        evidence=evidence_of(stages, ["bubble_ns", "idle_ns", "p2p_wait_ns", "collective_wait_ns"], ["bubble_pct"]),
        recommendation=_advice(row, ideal, is_uneven=row["pipeline"] in uneven, is_held_up=held_ns > 0),
        caveat="Idle time counts as bubble whatever its cause; the expected figure assumes even stages and free "
        f"transfers.{_of_gain(row, ideal, is_held_up=held_ns > 0)}",
        gain_ns=_beyond_expected(stages, _waits_pct(row) or 0.0, expected)
        if ideal is None
        else ideal.gain_ns + held_ns,
        gain_error_ns=None if ideal is None else ideal.error_ns,
        gain_is_bound=True,
        named=(int(worst["rank"]),),
        is_of_ideal=True,
        table="pipeline_schedule",
        about=pipeline_name(row["pipeline"]),
        part_of=cause or (pipeline_name(uneven[row["pipeline"]]) if row["pipeline"] in uneven else elsewhere),
    )


def _severity(row: Mapping[str, Any], ideal: Gain | None, held_up_ns: int = 0) -> Severity:
    """By what an ideal pipeline gains; where the schedule is all that costs, by what twice the microbatches do."""
    waits, expected = _waits_pct(row) or 0.0, row["expected_bubble_pct"]
    if ideal is None:
        return severity(waits)
    won = float(ideal.gain_ns + held_up_ns)
    if expected is not None and waits <= expected + BEYOND_EXPECTED_PCT:
        won = max(won, _saved_by_twice_ns(row, ideal) or 0.0)
    return severity(100 * won / max(ideal.before_ns, 1))


def _beside(others: Sequence[Mapping[str, Any]]) -> str:
    """How long the other pipelines of the same schedule wait."""
    if not others:
        return ""
    shares = sorted({f"{row['bubble_pct']:.0f}" for row in others}, key=int)
    who = f"{len(others)} others wait" if len(others) > 1 else f"that of ranks {others[0]['ranks']} waits"
    return f"; {who} {' to '.join(dict.fromkeys((shares[0], shares[-1])))} %"


def _in_collectives(row: Mapping[str, Any]) -> str:
    """What its stages wait for each other at the end of a step, which is the schedule's, too."""
    more = row["collective_wait_pct"]
    return "" if more is None or more < 1 else f", and {more:.0f} % more in collectives among its stages"


def _schedule(row: Mapping[str, Any]) -> str:
    """What the schedule alone would cost, in brackets; its name where there is no figure for it."""
    if row["expected_bubble_pct"] is None:
        return f" (schedule: {row['schedule']})" if row["schedule"] else ""
    on = f" on {row['stages'] // row['stages_per_rank']} ranks" if row["stages_per_rank"] > 1 else ""
    of = f"{row['stages']} stages{on} and {row['microbatches']} microbatch{'' if row['microbatches'] == 1 else 'es'}"
    named = f", {row['schedule']}" if on or row["schedule"] not in OF_KNOWN_BUBBLE else ""
    return f" ({_share(row['expected_bubble_pct'])} expected of {of}{named})"


def _share(pct: float) -> str:
    return f"{pct:.0f} %" if pct >= 10 or pct == round(pct) else f"{pct:.1f} %"


def _of_stream(held_ns: int, ideal: Gain | None) -> str:
    """A sentence on messages that hold up each other, where they do."""
    if not held_ns or ideal is None:
        return ""
    return (
        " All messages of a rank follow each other on one stream, so that a receive that waits holds up the sends "
        f"behind it: that alone costs about {time_text(held_ns)}{rate(ideal.steps)}."
    )


def _of_gain(row: Mapping[str, Any], ideal: Gain | None, *, is_held_up: bool) -> str:
    if ideal is not None:
        apart = ", those of each neighbour and direction on a stream of their own" if is_held_up else ""
        return (
            " The gain is of the same passes in the same order with even stages, hosts that take no time and free "
            f"messages (what-if --stage ideal){apart}."
        )
    if row["expected_bubble_pct"] is not None:
        return " The gain is the step less one of the same work with it alone."
    if row["schedule"]:
        return " What this schedule alone costs depends on the lengths of its passes: no figure is expected of it."
    return f" What the schedule alone costs is not known: {row['why_unknown']}."


def _beyond_expected(stages: pd.DataFrame, measured_pct: float, expected_pct: float | None) -> int:
    """By how much a step is longer than one with the same work and no more bubble than the schedule costs."""
    step_ns = float(stages["window_ns"].astype("int64").mean()) / (count_of_steps(stages) or 1)
    busy_ns = step_ns * (100 - measured_pct) / 100
    return max(0, round(step_ns - 100 * busy_ns / (100 - (expected_pct or 0))))


def _advice(row: Mapping[str, Any], ideal: Gain | None, *, is_uneven: bool, is_held_up: bool = False) -> str:
    other = "a zero-bubble" if (row["stages_per_rank"] or 1) > 1 else "an interleaved or zero-bubble"
    is_of_lengths = row["schedule"] is not None and row["schedule"] not in OF_KNOWN_BUBBLE
    shrink = "More microbatches a step shrink" if is_of_lengths else (
        f"More microbatches a step, or {other} schedule, shrink"
    )  # fmt: skip
    expected = row["expected_bubble_pct"]
    if expected is None or (_waits_pct(row) or 0.0) <= expected + BEYOND_EXPECTED_PCT:
        return f"{shrink} it{_of_twice(row, ideal)}."
    if is_held_up and not is_uneven:
        return f"{_OWN_STREAMS} {shrink} the {_share(expected)} that the schedule costs{_of_twice(row, ideal)}."
    first = (
        f"Move layers from {its_stages(row)} to {the_others(row)} (the first and last stages also carry "
        "embedding, head and loss)."
        if is_uneven
        else "Look at late hosts and slow transfers first: the schedule costs less."
    )
    return f"{first} {shrink} the {_share(expected)} that the schedule costs{_of_twice(row, ideal)}."


def _saved_by_twice_ns(row: Mapping[str, Any], ideal: Gain | None) -> float | None:
    """What half of the schedule's bubble takes of the ideal step: (S−1)/(vM+S−1) with twice the vM."""
    if ideal is None or row["expected_bubble_pct"] is None:
        return None
    idle = row["expected_bubble_pct"] / 100
    half = idle / (2 - idle)
    return float(ideal.after_ns * (1 - (1 - idle) / (1 - half)))


def _of_twice(row: Mapping[str, Any], ideal: Gain | None) -> str:
    """The same, as the end of a sentence."""
    saved_ns = _saved_by_twice_ns(row, ideal)
    if saved_ns is None or ideal is None:
        return ""
    return f": twice the microbatches, or stages a rank, at best by {time_text(saved_ns)}{rate(ideal.steps)}"
