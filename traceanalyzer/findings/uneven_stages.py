"""A rule about pipelines whose stages compute unequally; replicas of one pipeline are told, and evened, together."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.operators.efficiency import Mfu
from traceanalyzer.analyses.pipelines.pipeline import Pipeline, Pipelines
from traceanalyzer.analyses.pipelines.shape import PipelineMessages
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.findings.basis import (
    LEAST_GAIN_PCT,
    Title,
    Won,
    count_of_steps,
    has_longer_window,
    per_step,
    plain,
    severity,
)
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.statistics import AS_LONG
from traceanalyzer.findings.stragglers.stragglers import said_with_gain
from traceanalyzer.findings.stragglers.wording import UNEVEN_STAGES, even_changes, is_slow_gpu, pipeline_name
from traceanalyzer.meaning.columns import Unit, in_a_line, numbers, time_text
from traceanalyzer.meaning.vocabulary import listed, rate, within_whole
from traceanalyzer.model.tables import only, rows_where

_NOTHING = "even stages gain nothing"

_MAKES = 0.5
"""Recomputation is why a stage computes longer where it makes this part of the FLOPs that it has more, and a slower GPU
where it makes this part of the time."""

_ALIKE: tuple[str, ...] = ("schedule", "stages", "stages_per_rank", "microbatches")


def pipeline_imbalance(
    pipelines: Pipelines,
    pipeline: Pipeline,
    mfu: Mfu,
    episodes: Episodes,
    replay: Replay,
    pipeline_messages: PipelineMessages,
    *,
    uneven_stages_times: float = UNEVEN_STAGES,
) -> list[Finding]:
    """A stage that computes over 10 % more than the mean stage: all others wait for it.

    The same stage of several pipelines (data parallel replicas) is one finding: layers move in all of them. A stage
    that alone recomputes its activations is told so: its layers are not too many. Not where it computes longer for more
    of the job was recorded of it, nor for its GPU being slower.
    """
    frame = pipeline.to_frame()
    stages = [
        (rows, frame[frame["pipeline"].isin([row["pipeline"] for row in rows])])
        for rows in uneven_alike(pipelines, frame, uneven_stages_times)
    ]
    one_way = _goes_one_way(pipeline_messages.table)
    return [
        _uneven(rows, own, mfu, replay, uneven_stages_times, one_way=one_way)
        for rows, own in stages
        if not _is_of_windows(own) and not _is_of_gpus(rows, own, episodes)
    ]


def _goes_one_way(messages: pd.DataFrame) -> bool:
    """Whether no rank gets messages from whom it sends some to, as stages of one model do in training."""
    sent = rows_where(messages, is_true(messages["is_send"]) & messages["peer"].notna()) if len(messages) else messages
    pairs = set(zip(sent["rank"].tolist(), sent["peer"].tolist(), strict=True)) if len(sent) else set()
    return bool(pairs) and not any((peer, rank) in pairs for rank, peer in pairs)


def _is_of_gpus(rows: Sequence[Mapping[str, Any]], stages: pd.DataFrame, episodes: Episodes) -> bool:
    """Whether the stage computes longer mostly for the same kernels taking longer, which is a finding by itself."""
    slower_ns = {
        rank: row["excess_ns"] * len(numbers(row["numbers"])) / row["steps"]
        for row in said_with_gain(episodes)
        if is_slow_gpu(row)
        for rank in numbers(row["ranks"])
    }
    compute = stages.set_index("rank")["compute_ns"].astype("float64") / (count_of_steps(stages) or 1)
    mean = compute.groupby(stages.set_index("rank")["pipeline"]).transform("mean")
    beyond = compute - mean
    return all(slower_ns.get(row["bottleneck_rank"], 0) >= _MAKES * beyond[row["bottleneck_rank"]] for row in rows)


def _is_of_windows(stages: pd.DataFrame) -> bool:
    """Whether the rank that computes longest does so for more of the job was recorded of it, and not the same steps."""
    if stages["steps"].notna().all():
        return False
    table = stages.set_index("rank")[["compute_ns", "window_ns"]].astype("float64")
    compute, rank = table["compute_ns"], int(table["compute_ns"].idxmax())
    return has_longer_window(table["window_ns"], rank, float(compute[rank] - compute.mean()))


def uneven_alike(pipelines: Pipelines, stages: pd.DataFrame, least_times: float) -> list[list[Mapping[str, Any]]]:
    """The pipelines with uneven stages, those of one schedule whose same stages compute longest together.

    Each of several is told with the most uneven one where its longest stage computes half as much beyond its mean: one
    threshold for each alone would take some of many replicas by chance.
    """
    alike: list[list[_Heavy]] = []
    for row in pipelines.rows():
        if row["compute_max_over_mean"] is not None:
            own = _Heavy(row, frozenset(_heavy(stages[stages["pipeline"] == row["pipeline"]], row)))
            home = next((others for others in alike if own.is_as(others[0])), None)
            alike.append([own]) if home is None else home.append(own)
    found = []
    for rows in ([own.row for own in others] for others in alike):
        most = max(row["compute_max_over_mean"] for row in rows)
        if most >= least_times:
            found.append([row for row in rows if row["compute_max_over_mean"] - 1 >= AS_LONG * (most - 1)])
    return found


class _Heavy(Struct, frozen=True):
    """A pipeline and the stages that compute longest in it."""

    row: Mapping[str, Any]
    stages: frozenset[int]

    def is_as(self, other: "_Heavy") -> bool:
        """Whether it is of one schedule with the other one, and the longest stage of either among both's heavy ones.

        A stage half as heavy as the longest is one of them in this replica and none in that one, by chance.
        """
        longest = {int(own["bottleneck_stage"]) for own in (self.row, other.row)}
        return all(self.row[name] == other.row[name] for name in _ALIKE) and longest <= self.stages & other.stages


def _uneven(
    rows: Sequence[Mapping[str, Any]], stages: pd.DataFrame, mfu: Mfu, replay: Replay, least_times: float, *,
    one_way: bool,
) -> Finding:  # fmt: skip
    row = max(rows, key=lambda row: row["compute_max_over_mean"])
    steps = count_of_steps(stages)
    compute = stages["compute_ns"].astype("int64")
    mean = compute.groupby(stages["pipeline"]).transform("mean")
    longest_ns = compute.max() / (steps or 1)
    excess = 100 * (row["compute_max_over_mean"] - 1)
    step_ns = stages["window_ns"].astype("int64").mean() / (steps or 1)
    evened = even_changes(stages)
    gain = gain_of(replay, *evened)
    gain_ns = round(longest_ns - mean.max() / (steps or 1)) if gain is None else gain.gain_ns
    is_nothing = gain is not None and 100 * gain.most_gain_ns < LEAST_GAIN_PCT * step_ns
    hidden = _behind_hosts(replay, evened) if is_nothing else ""
    more = recomputed_more(mfu, stages, row, least_times)
    heavy = _heavy(stages, row)
    ranks = _longest(rows, heavy, stages)
    whence = f"stages {listed(heavy)}" if len(heavy) > 1 else its_stages(row)
    move = f"{'m' if more else 'M'}ove layers from {whence} to {the_others(row)}"
    return Finding(
        severity=severity(100 * gain_ns / step_ns),
        title=Title(
            f"{_who(row, ranks, heavy)} {time_text(longest_ns)} "
            f"{within_whole(steps)}, {_beside_others(stages, heavy, excess, hidden, many=len(rows) > 1)}.",
            "" if hidden else _shorter(gain),
            f" {more}" if more else "",
        ),
        summary=f"Uneven pipeline stages: {its_stages(row)} computes {row['compute_max_over_mean']:.2g}× the mean.",
        evidence=evidence_of(stages, ["compute_ns", "idle_ns"]),
        recommendation=None if hidden == _NOTHING else _advice(more, move, one_way=one_way),
        caveat="The gain supposes that layers take their hosts' work along. Coefficient of variation of compute "
        f"{row['compute_cv']:.3f} (population, ddof = 0); a stage "
        "may be limited by memory instead.",
        **gained(gain, gain_ns),
        named=(*ranks, *_only_other(stages, heavy, row, is_of_recomputing=bool(more))),
        table="pipeline",
        about=pipeline_name(rows[0]["pipeline"]),
    )


def _shorter(gain: Gain | None) -> Title:
    """What even stages gain, where a replay tells."""
    if gain is None or not (gain.gain_ns or gain.is_delayed):
        return Title()
    even = "With even stages" if gain.is_bound else "With stages and their hosts' work made even"
    return Title(f" {even} {gain.whole} is ", Won.recorded(gain), ".")


def _advice(more: str, move: str, *, one_way: bool) -> str:
    if more:
        return f"Recompute activations (checkpointing) in all stages or in none, or {move}."
    if one_way:
        return (
            f"{move}; if they are no stages of one model (prefill and decode apart), give the longer work more ranks."
        )
    return f"{move}; the first and last stages also carry embedding, head and loss."


def recomputed_more(mfu: Mfu, stages: pd.DataFrame, row: Mapping[str, Any], least_times: float) -> str:
    """What is said where recomputation makes half of what the rank's operators do more, or more; else nothing."""
    table = mfu.to_frame()
    own = table[table["rank"].isin(stages["rank"]) & is_true(table["is_complete"])]
    done = own.groupby("rank")[["model_flops", "recompute_flops"]].mean().astype("float64")
    rank, others = row["bottleneck_rank"], stages.loc[stages["stage"] != row["bottleneck_stage"], "rank"].tolist()
    if not {rank, *others} <= {*done.index}:
        return ""
    mean, of_rank = done.loc[others].mean(), done.loc[rank]
    more = of_rank["recompute_flops"] - mean["recompute_flops"]
    if more < max(_MAKES * (of_rank - mean).sum(), (least_times - 1) * mean.sum()):
        return ""
    model, most, least = (
        in_a_line(flops, Unit.FLOPS)
        for flops in (of_rank["model_flops"], of_rank["recompute_flops"], mean["recompute_flops"])
    )
    whose = f"rank {others[0]}" if len(others) == 1 else "ranks of other stages on average"
    beside = least if mean["recompute_flops"] else "none"
    return f"It recomputes {most} a step beside the model's {model}, {whose} {beside}."


def the_others(row: Mapping[str, Any]) -> str:
    """Where a bottleneck's layers can go: `stage 0` of two stages, else `the others`."""
    return f"stage {1 - row['bottleneck_stage']}" if row["stages"] == 2 else "the others"


def its_stages(row: Mapping[str, Any]) -> str:
    """The stage of the rank that computes most, or its stages."""
    if (row["stages_per_rank"] or 1) > 1:
        return f"rank {row['bottleneck_rank']}'s stages"
    return f"stage {row['bottleneck_stage']}"


def _heavy(stages: pd.DataFrame, row: Mapping[str, Any]) -> list[int]:
    """The stage that computes longest, and those that have half as much beyond the mean of all, or more."""
    if (row["stages_per_rank"] or 1) > 1:
        return [int(row["bottleneck_stage"])]
    each = stages.groupby("stage")["compute_ns"].mean().astype("float64")
    beyond = each - each.mean()
    return sorted({int(row["bottleneck_stage"]), *map(int, each.index[beyond >= AS_LONG * beyond.max()])})


def _longest(rows: Sequence[Mapping[str, Any]], heavy: Sequence[int], stages: pd.DataFrame) -> tuple[int, ...]:
    """The ranks of the stages that compute longest."""
    of_stages = stages.loc[stages["stage"].isin(heavy), "rank"]
    return tuple(sorted(map(int, of_stages if len(heavy) > 1 else (row["bottleneck_rank"] for row in rows))))


def _only_other(
    stages: pd.DataFrame, heavy: Sequence[int], row: Mapping[str, Any], *, is_of_recomputing: bool
) -> tuple[int, ...]:
    """The other one of two ranks, where it is named: as one of several stages, or as what recomputes less."""
    others = stages.loc[~stages["stage"].isin(heavy), "rank"]
    is_named = is_of_recomputing or (row["stages_per_rank"] or 1) > 1
    return tuple(map(int, others)) if len(others) == 1 and is_named else ()


def _who(row: Mapping[str, Any], ranks: Sequence[int], heavy: Sequence[int]) -> str:
    if len(heavy) > 1:
        return f"Stages {listed(heavy)} (ranks {listed(ranks)}) compute up to"
    of_many = (row["stages_per_rank"] or 1) > 1
    if len(ranks) == 1:
        return (f"Rank {ranks[0]} with its {row['stages_per_rank']} stages" if of_many else
                f"Stage {row['bottleneck_stage']} (rank {ranks[0]})") + " computes"  # fmt: skip
    if of_many:
        return f"Ranks {listed(ranks)}, each with its {row['stages_per_rank']} stages, compute up to"
    return f"Stage {row['bottleneck_stage']} (ranks {listed(ranks)}) computes up to"


def _behind_hosts(replay: Replay, evened: Sequence[Change]) -> str:
    """What even stages gain once hosts take no time, where they gain nothing before."""
    hosts, both = gain_of(replay, Change("host")), gain_of(replay, Change("host"), *evened)
    if hosts is None or both is None or replay.engine is None or not replay.engine.has_hosts:
        return _NOTHING
    more_ns = hosts.after_ns - both.after_ns
    if 100 * more_ns < LEAST_GAIN_PCT * hosts.before_ns:
        return _NOTHING
    return f"hidden behind the hosts now; without these, even stages gain {time_text(more_ns)}{rate(hosts.steps)}"


def _beside_others(stages: pd.DataFrame, heavy: Sequence[int], excess_pct: float, hidden: str, *, many: bool) -> str:
    others = stages[~stages["stage"].isin(heavy)]
    waits = hidden or f"the others wait for {'it' if len(heavy) == 1 else 'them'}"
    if many or len(others) != 1:
        return f"{excess_pct:.0f} % more than the mean rank{' of its pipeline' if many else ''}: {waits}"
    (other,) = others.to_dict("records")
    name = f"rank {other['rank']}" if pd.notna(other["stages_per_rank"]) and other["stages_per_rank"] > 1 else (
        f"stage {other['stage']}"
    )  # fmt: skip
    compute = time_text(other["compute_ns"] / (count_of_steps(stages) or 1))
    if hidden:
        return f"{name} {compute}: {hidden}"
    return f"{name} {compute} and waits for {'it' if len(heavy) == 1 else 'them'}"


def evidence_of(stages: pd.DataFrame, sums: Sequence[str], others: Sequence[str] = ()) -> tuple[dict[str, Any], ...]:
    """Stage by stage, sums as those of a mean step."""
    return plain(per_step(only(stages, ["rank", "stage", *sums, *others]), sums, count_of_steps(stages)))
