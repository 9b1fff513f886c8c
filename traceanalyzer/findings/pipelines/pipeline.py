"""A rule about pipelines whose bubble is larger than their schedule explains."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.pipelines.pipelines import Pipelines
from traceanalyzer.analyses.pipelines.schedules import OF_KNOWN_BUBBLE
from traceanalyzer.analyses.replay.change import IDEAL, Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.findings.basis import count_of_steps, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.heavy_stages import UNEVEN_STAGES, pipeline_name
from traceanalyzer.findings.late.host_story import HOSTS
from traceanalyzer.findings.late.lateness import of_lead, said
from traceanalyzer.findings.link_rates import LOW_PEAK_PCT, SLOW_LINKS, healthy_rate
from traceanalyzer.findings.pipelines.one_stream import held_up_ns
from traceanalyzer.findings.pipelines.outside_microbatches import OUTSIDE_PCT, costly_outside, work_outside
from traceanalyzer.findings.pipelines.uneven_stages import (
    evidence_of,
    its_stages,
    the_others,
    uneven_alike,
)
from traceanalyzer.kinds import MESSAGES
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.severities import Severity
from traceanalyzer.meaning.wholes import rate
from traceanalyzer.model.tables import rows_where

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
