"""A stage of a pipeline that has no trace and for whose messages its neighbours wait longer than for its replicas'."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.integrity.integrity import LEFT_OUT, Integrity
from traceanalyzer.analyses.phases.exposed_calls import PARTS, ExposedCalls
from traceanalyzer.analyses.pipelines.pipeline import Pipeline, has_known_stages
from traceanalyzer.analyses.pipelines.pipeline_messages import PipelineMessages
from traceanalyzer.analyses.spread import median_of_others
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import Basis, plain
from traceanalyzer.findings.capture.missing_straggler import LEAST_WAIT_PCT
from traceanalyzer.findings.capture.unmatched import PARTNERS
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.listed import listed, numbered
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text

_STEADY = 0.5
"""Of its mean: what a stage is waited for longer in every step."""


_MOST = 2.0
"""Times what a rank spends longer on messages, at most, that one next to the late rank does."""

_WHOLE = -1
"""Stands for a capture without steps."""


class _Waited(Struct, frozen=True):
    """What a rank spends on messages with one that is not here: in each step by how much longer than a replica."""

    rank: int
    waits_for: int
    longer_ns: pd.Series
    waited_ns: float
    beside: int
    its_peer: int
    beside_ns: float


def absent_stage(
    headline: Headline,
    steps: Steps,
    pipeline: Pipeline,
    pipeline_messages: PipelineMessages,
    exposed_calls: ExposedCalls,
    ranks: Ranks,
    integrity: Integrity,
    episodes: Episodes,
    *,
    absent_wait_pct: float = LEAST_WAIT_PCT,
) -> list[Finding]:
    """A stage without a whole trace is waited for over 5 % of a step longer than the same stage of other pipelines.

    That is what a rank next to it spends on messages with it, beside the median of the ranks at the same stage; what a
    bubble takes, it takes there as well. All ranks of the pipeline that are here spend longer on messages, and none of
    them is late itself, or the late one may be among them. Nor is it told beside a rank that is known to be late by as
    much: ranks that wait for that one in collectives do so here in one call, there in another. Without another
    pipeline a wait is not told from the bubble.
    """
    if not len(headline) or not len(pipeline):
        return []
    cut = ranks.cut_off
    stages = _stages(pipeline.table[has_known_stages(pipeline.table)])
    stages["is_here"] &= ~stages.index.isin(cut)
    if stages["is_here"].all():
        return []
    basis = Basis.of(headline, steps)
    least_ns = absent_wait_pct / 100 * basis.step_ns
    exchanged = _exchanged(pipeline_messages.table, exposed_calls.table, basis, stages)
    # Who is late spends less on messages: beside it anybody would seem to wait.
    late = {rank for text in episodes.table["ranks"] for rank in numbers(text)}
    known_ns = max(episodes.table["excess_ns"].astype("float64"), default=0.0)
    exchanged = exchanged[~exchanged.index.get_level_values("rank").isin(late)]
    longer = exchanged.groupby("rank").sum().mean(axis=1)
    stage = stages["stage"].reindex(longer.index)
    longer = pd.concat([_beyond_replicas(own) for _, own in longer.groupby(stage)]) if len(longer) else longer
    are_left_out = len(integrity) > 0 and bool((integrity.table["check"] == LEFT_OUT).any())
    found = []
    for _, own in stages.groupby("pipeline"):
        if late & {*own.index} or not _MOST * longer.reindex(own.index[own["is_here"]]).min() >= least_ns:
            continue
        absent = own.index[~own["is_here"]]
        waited = [each for rank in absent for each in _waited(rank, stages, exchanged)]
        waited = [each for each in waited if float(each.longer_ns.mean()) >= max(least_ns, known_ns)]
        if waited:
            found.append(_finding(waited, list(absent), stages, basis, cut, are_left_out=are_left_out))
    return found


def _stages(table: pd.DataFrame) -> pd.DataFrame:
    """`pipeline`, `stage` and `is_here` of every rank of the pipelines, with a trace or without."""
    rows = [(row.rank, row.pipeline, row.stage, True) for row in table.itertuples()]
    for number, own in table.groupby("pipeline"):
        names = numbers(own["absent_ranks"].iloc[0])
        free = sorted({*range(int(own["ranks"].iloc[0]))} - {*own["stage"]})
        rows += [(rank, number, stage, False) for rank, stage in zip(names, free, strict=True)]
    return pd.DataFrame(rows, columns=["rank", "pipeline", "stage", "is_here"]).astype({"rank": int}).set_index("rank")


def _exchanged(messages: pd.DataFrame, exposed: pd.DataFrame, basis: Basis, stages: pd.DataFrame) -> pd.DataFrame:
    """Exposed time of each rank's messages with each peer: a row for each pair, a column for each step."""
    here = stages.index[stages["is_here"]]
    pairs = messages.loc[messages["rank"].isin(here), ["rank", "call", "peer"]].drop_duplicates()
    pairs = pairs[pairs["peer"].isin(stages.index)]
    held = basis.within(exposed).merge(pairs, on=["rank", "call"])
    step = held["step"].astype("Int64") if basis.steps is not None else _WHOLE
    lengths = held.assign(step=step, ns=held[list(PARTS)].astype("float64").sum(axis=1))
    wide = lengths.pivot_table(index=["rank", "peer"], columns="step", values="ns", aggfunc="sum", fill_value=0.0)
    columns = list(basis.numbers) if basis.steps is not None else [_WHOLE]
    every = pd.MultiIndex.from_frame(pairs[["rank", "peer"]].drop_duplicates())
    return wide.reindex(index=every, columns=columns, fill_value=0.0)


def _beyond_replicas(spent_ns: pd.Series) -> pd.Series:
    """What each rank of a stage spends longer than the median of the stage's others; absent without others."""
    if len(spent_ns) < 2:
        return pd.Series(np.nan, index=spent_ns.index)
    own = spent_ns.to_numpy()[:, None]
    return pd.Series((own - median_of_others(own))[:, 0], index=spent_ns.index)


def _waited(absent: int, stages: pd.DataFrame, exchanged: pd.DataFrame) -> Iterator[_Waited]:
    """How long its neighbours of which there is a trace wait for it, beside the same two stages of other pipelines."""
    ranks, peers = (exchanged.index.get_level_values(name) for name in ("rank", "peer"))
    own, other = stages.loc[ranks], stages.loc[peers]
    for rank in ranks[peers == absent]:
        stage, pipeline = stages.loc[rank, ["stage", "pipeline"]]
        is_alike = (own["stage"].to_numpy() == stage) & (other["stage"].to_numpy() == stages.loc[absent, "stage"])
        is_alike &= own["pipeline"].to_numpy() != pipeline
        if not is_alike.any():
            continue
        alike, ns = exchanged[is_alike], exchanged.loc[(rank, absent)]
        middle = alike.median()
        beside, its_peer = (alike.mean(axis=1) - middle.mean()).abs().idxmin()
        yield _Waited(int(rank), absent, ns - middle, float(ns.mean()), int(beside), int(its_peer),
                      float(middle.mean()))  # fmt: skip


def _finding(
    waited: Sequence[_Waited],
    absent: Sequence[int],
    stages: pd.DataFrame,
    basis: Basis,
    cut: Collection[int],
    *,
    are_left_out: bool,
) -> Finding:
    most = max(waited, key=lambda own: own.longer_ns.mean())
    rank = most.waits_for
    why = "its file is cut off" if rank in cut else "--ranks leaves it out" if are_left_out else "it has no file"
    others = [other for other in absent if other != rank]
    whom = f"ranks {listed(sorted(absent))}" if others else f"rank {rank}"
    add = f"Look at {whom} too" if are_left_out else f"Add the whole traces of {whom}, or record all ranks again"
    behind = f" It may wait for {numbered('rank', others)}, not here either." if others else ""
    return Finding(
        severity="high",
        title=f"The others wait for rank {rank}, stage {stages.loc[rank, 'stage']} of its pipeline, that is not here "
        f"({why}): rank {most.rank} spends {time_text(most.waited_ns)} {_when(most.longer_ns, basis)} on messages "
        f"with it, rank {most.beside} at the same stage {time_text(most.beside_ns)} on those with rank "
        f"{most.its_peer}.{behind}",
        evidence=plain(pd.DataFrame([_row(own) for own in waited])),
        recommendation=f"{add}: what makes {'them' if others else 'it'} late is told there alone.",
        caveat="A slow link to it looks the same.",
        named=(rank, most.rank, most.beside, most.its_peer, *others),
        is_about_capture=True,
        table="pipeline",
        about=PARTNERS,
    )


def _when(longer_ns: pd.Series, basis: Basis) -> str:
    """`a step`, with those in which most of it happens where it is not in all of them."""
    if basis.steps is None:
        return "of the capture"
    held = longer_ns[longer_ns >= _STEADY * longer_ns.mean()]
    if len(held) == len(longer_ns):
        return "a step"
    return f"a step (most in step{'' if len(held) == 1 else 's'} {', '.join(map(str, held.index))})"


def _row(own: _Waited) -> Mapping[str, object]:
    return {"rank": own.rank, "waits_for": own.waits_for, "exposed_per_step_ns": round(own.waited_ns),
            "beside": own.beside, "its_peer": own.its_peer,
            "its_exposed_per_step_ns": round(own.beside_ns)}  # fmt: skip
