"""Work of a pipeline's stage that no microbatch repeats: all other stages stand still meanwhile."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.what_ran import OPERATOR, WhatRan
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.findings.basis import LEAST_GAIN_PCT, plain, severity
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.late.heavy_stages import pipeline_name
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.wholes import rate
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, rows_where

OUTSIDE_PCT = 3.0
"""Of a step."""

_OF_ONE = 2
"""Messages of an end stage that one microbatch takes: it is sent on, its gradient comes back."""


class Outside(Struct, frozen=True):
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

    own: Outside
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


def outside(replay: Replay, rank: int) -> Outside | None:
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
    return Outside(
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


def _called(own: Outside, work: pd.DataFrame, rank: int) -> str:
    """The operator with its shapes, where one takes about as long; else the kernel."""
    if own.operator is None:
        return short_name(own.kernels[0])
    held = work[(work["rank"] == rank) & (work["what"] == OPERATOR) & work["step"].isin(own.by_step)]
    held = held[held["name"].str.startswith(own.operator)]
    if held.empty:
        return own.operator
    mean = held.groupby("name")["total_ns"].sum() / max(len(own.by_step), 1)
    return str((mean - own.ns).abs().idxmin())
