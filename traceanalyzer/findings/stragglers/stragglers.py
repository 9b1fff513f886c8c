"""Ranks that the others wait for: one finding for each episode, and why a rank takes longer."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.episodes import WORTH_PCT, Episodes, is_of_every_host
from traceanalyzer.analyses.blame.slow_transfers import collective_of
from traceanalyzer.analyses.blame.step_budget import KERNEL, OPERATOR, SIZES, StepNeeds, WhatRan
from traceanalyzer.analyses.experts import DISPATCH, ExpertLayers
from traceanalyzer.analyses.host.cpu_time import HostWork
from traceanalyzer.analyses.operators.efficiency import Efficiency, Mfu
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.changes import EVEN, PEERS, TYPICAL, Change, read_change
from traceanalyzer.analyses.replay.gains import Engine, Gain
from traceanalyzer.analyses.replay.replay import MOST_RANKS, Replay, gain_of
from traceanalyzer.analyses.replay.what_ifs import EvenExperts
from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import EXPLAINED_PCT, MOSTLY, Basis, Title, Won, lower, otherwise, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.statistics import of_the_others, the_others
from traceanalyzer.findings.stragglers.wording import (
    LOOK_AT_GPU,
    MORE,
    OF_HOST,
    SLOWER,
    UNEVEN_STAGES,
    Recorded,
    Unlike,
    advice,
    beside_late,
    caveat,
    each_of,
    even_gain,
    heavy_stage,
    in_short,
    is_of_hosts,
    is_slow_gpu,
    late,
    of_as_many_steps,
    peer,
    rate_of,
    title,
    waited,
    who,
    whole_ns,
    whole_of,
    whose,
    with_advice,
)
from traceanalyzer.meaning.columns import Unit, digits, in_a_line, numbers, time_span, time_text
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import (
    COMPUTE,
    HOST,
    IDLE_CAUSES,
    first_upper,
    gain_said,
    named,
    numbered,
    step_or_capture,
)
from traceanalyzer.model.tables import only, rows_where

# Episodes that hide each other: who leads, and what is said of them together.


Row = Mapping[str, Any]

_MAIN = 0.5
"""Of what all gain together: an episode that gains this much alone is told alone, the others behind it."""

_SEVERAL = 2

_END_OF_FIRST = re.compile(r"(?<!\d\))[:;.] |\.$")
"""Where an advice's first part ends: not within a frame, `train.py(88): log_metrics`."""

_MANY = 3
"""Of so many that are late by the same the latest stands for all: which ranks the others are, and by how much."""

_COUNTS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


def joint_ns(row: Row) -> int:
    """What mending all of its set gains, without what recording takes the hosts where that is known; 0 of no set."""
    unprofiled, joint = row["joint_unprofiled_gain_ns"], row["joint_gain_ns"]
    return (joint if unprofiled is None else unprofiled) or 0


def set_of(row: Row, rows: Sequence[Row]) -> list[Row]:
    """The episodes of its set in order; itself alone without one."""
    if row["together"] is None:
        return [row]
    return sorted((each for each in rows if each["together"] == row["together"]), key=_place)


def _place(row: Row) -> int:
    return int(row["place_in_set"])


def told(finding: Finding, row: Row, rows: Sequence[Row], recorded: Recorded) -> Finding:
    """The finding of one episode, as one of its set: the first for all of them, the others behind those before them."""
    own = set_of(row, rows)
    if len(own) == 1:
        return finding
    before = own[: _place(row)]
    if before:
        title = f"{first_upper(late(row, recorded))} {waited(row)}. Hidden behind {named([whose(it) for it in before])}"
        costs = f"with that mended, it costs {time_text(row['then_gain_ns'])}{rate_of(row, recorded.steps)}"
        ahead = (rank for it in before for rank in numbers(it["ranks"]))
        return replace(finding, title=f"{title} now; {costs}.", named=tuple(dict.fromkeys((*beside_late(row), *ahead))))
    alone = row["gain_ns"] if row["unprofiled_gain_ns"] is None else row["unprofiled_gain_ns"]
    is_main = alone is not None and alone >= _MAIN * joint_ns(row)
    return finding if is_main else _of_all(finding, own, recorded)


def with_other_causes(finding: Finding, row: Row, rows: Sequence[Row], replay: Replay) -> Finding:
    """The first finding about ranks that are late by several causes, each mended alone, with what all of them gain.

    As it stands where the others add less than half of what they gain alone: these are other steps' or hide each other.
    """
    own = [each for each in rows if each["ranks"] == row["ranks"] and each["together"] is None and each["gain_ns"]]
    if len(own) < _SEVERAL or own[0] is not row or any(each["is_in_turn"] for each in own):
        return finding
    whole = gain_of(replay, Change("rank", PEERS, frozenset(numbers(row["ranks"]))))
    others_ns = sum(each["gain_ns"] for each in own[1:])
    if whole is None or whole.is_bound or whole.gain_ns < row["gain_ns"] + _MAIN * others_ns:
        return finding
    also = named(list(dict.fromkeys(_called_beside(each, row) for each in own[1:])))
    return replace(finding, title=Title(finding.title, f" With {also} mended too it is ", Won.of(whole), "."))


def _called_beside(row: Row, first: Row) -> str:
    """How a further cause is called: of two things in which one rank's host is late in turn, by its steps."""
    is_told_by_steps = row["cause"] == first["cause"] and not row["is_in_every_step"] and numbers(row["numbers"])
    return f"{whose(row)} in {numbered('step', numbers(row['numbers']))}" if is_told_by_steps else whose(row)


def _of_all(finding: Finding, rows: Sequence[Row], recorded: Recorded) -> Finding:
    """Nobody alone gains much: one finding about all of them, who is latest first."""
    lead = rows[0]
    rows = sorted(rows, key=lambda row: -row["cost_ns"])
    count = _COUNTS.get(len(rows), str(len(rows)))
    alike = _alike(rows)
    parts = [_late(part, recorded) for part in alike]
    bound = bool(lead["gain_is_bound"])
    joint = Won(lead["joint_gain_ns"], bound, lead["joint_unprofiled_gain_ns"], lead["step_ns"])
    alone = max(row["gain_ns"] or 0 for row in rows)
    by_one = gain_said(time_text(alone), is_bound=True) if alone else "no shorter"
    steps = [None if row["is_in_every_step"] else numbers(row["numbers"]) or None for row in rows]
    return replace(
        finding,
        severity=severity(100 * joint_ns(lead) / whole_ns(lead)),
        title=Title(
            f"{first_upper('; '.join(parts))}: the {count} hide each other. Mended together, "
            f"{whole_of(lead, recorded.steps)} is ",
            joint,
            f", {by_one} by one alone.",
        ),
        summary=f"Stragglers hide each other: {named([whose(row) for row in rows[:_SHOWN_OF_ALL]])}.",
        recommendation=_advice(alike),
        gain_ns=lead["joint_gain_ns"],
        unprofiled_gain_ns=lead["joint_unprofiled_gain_ns"],
        ranks=_ranks(rows),
        named=tuple(dict.fromkeys(rank for row in rows for rank in peer(row))),
        steps=None if None in steps else tuple(sorted({step for own in steps for step in own or ()})),
        changes=tuple(change for row in rows for change in changes_of(row)),
        cause=" and ".join(dict.fromkeys(row["cause"] for row in rows)),
    )


_SHOWN_OF_ALL = 3
"""Stragglers that a headline has room for."""


def _alike(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows, latest first; those together that are late by the same, where they are many."""
    by_what: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_what.setdefault((row["cause"], row["name"], row["same_work_ratio"] is None), []).append(row)
    alike = (part for own in by_what.values() for part in ([own] if len(own) >= _MANY else [[row] for row in own]))
    return sorted(alike, key=lambda part: -part[0]["cost_ns"])


def _late(alike: Sequence[Row], recorded: Recorded) -> str:
    """When, who and by what; of several the latest, and who else."""
    first, *others = alike
    said = late(first, recorded).rstrip(":;")
    if not others:
        return said
    more = sorted(row["excess_ns"] for row in others)
    steps = " in steps of their own," if any(row["numbers"] != first["numbers"] for row in others) else ""
    each = each_of(first)
    return f"{said}; likewise {numbered('rank', _ranks(others))},{steps} by {time_span(more[0], more[-1])}{each}"


def _ranks(rows: Sequence[Row]) -> tuple[int, ...]:
    return tuple(sorted({rank for row in rows for rank in numbers(row["ranks"])}))


def _advice(alike: Sequence[Sequence[Row]]) -> str:
    """What to do about each in one sentence, which is what stands on top of a page; then what that leaves out."""
    advised = dict.fromkeys(advice(_as_one(part)) for part in alike)
    parts = [_END_OF_FIRST.split(text, maxsplit=1) for text in advised]
    first, *others = (head for head, *_ in parts)
    short = "; and ".join([first, *(head[0].lower() + head[1:] for head in others)])
    rest = dict.fromkeys(first_upper(more.strip()) for _, *left in parts for more in left if more.strip())
    return " ".join([f"{short}: one alone gains less than half of it.", *rest])


def _as_one(alike: Sequence[Row]) -> Row:
    """Those that are late by the same as one episode of all their ranks: what is to be done about them is the same."""
    first, *others = alike
    return {**first, "ranks": ",".join(map(str, _ranks(alike))), "place": None} if others else first


# How far the gain of mending a lateness is known: its range without the profiler, or why it is a bound.


_SAME = 0.02
"""A gain that the changes alone give to within this part is the one that is said."""


def how_far(row: Mapping[str, Any], replay: Replay) -> str:
    """A sentence about an episode's gain; empty where it is a forecast that recording changes little."""
    gain_ns, engine = row["gain_ns"], replay.engine
    if gain_ns is None:
        return ""
    if row["gain_is_bound"]:
        return _why_bound(engine, replay.why_not)
    if engine is None or not otherwise(gain_ns, row["unprofiled_gain_ns"], row["step_ns"]):
        return ""
    return _range(engine, row)


def _why_bound(engine: Engine | None, why_not: str) -> str:
    if engine is None:
        return f"It is not replayed: {why_not}." if why_not else ""
    least_ns = PERCENT / 100 * engine.before_ns
    why = []
    if engine.error_ns > least_ns:
        of = step_or_capture(engine.windows.steps)
        why.append(f"{time_text(engine.error_ns)} of {of} are not explained by the graph")
    if engine.unmatched_ns > least_ns:
        why.append(f"of {time_text(engine.unmatched_ns)} of communication a rank the partners are not known")
    return f"It is a bound because {', and '.join(why)}." if why else ""


def _range(engine: Engine, row: Mapping[str, Any]) -> str:
    """The least and the most gain by what recording may take the hosts."""
    if not row["what_if"] or len(engine.job.nodes) > MOST_RANKS:
        return "Its range without the profiler is told by `analyze-traces what-if`."
    changes = [read_change(text) for text in row["what_if"].split("; ")]
    gains = {cost: max(0, before - after) for cost, (before, after) in engine.unprofiled_ns(changes).items()}
    if not gains or abs(gains[TYPICAL] - row["unprofiled_gain_ns"]) > _SAME * engine.before_ns:
        return ""
    between = time_span(min(gains.values()), max(gains.values()))
    return f"Without the profiler the gain is {between}, by what recording may take the hosts."


# What evening out the experts' load gains of a step: by the replay, else what it saves at most.


_GROUP = ["group", "group_ranks"]

UNEVEN = 1.1
"""Largest load over mean."""


class Evened(Struct, frozen=True):
    """What an even load of one group gains of a step.

    Attributes:
        hot_rank: that its uneven dispatches load most.
        gain_ns: of the replay; without one the most that can be saved.
        error_ns: of the replay.
        is_bound: it is no more than a bound.
        is_replayed: it is the replay's.
    """

    hot_rank: int
    gain_ns: int
    error_ns: int | None = None
    is_bound: bool = True
    is_replayed: bool = False


def evened(expert_layers: pd.DataFrame, even_experts: pd.DataFrame) -> Mapping[tuple[str, str], Evened]:
    """Of each group with uneven dispatches what an even load gains."""
    if expert_layers.empty:
        return {}
    replayed = {(row["group"], row["group_ranks"]): row for row in even_experts.to_dict("records")}
    found = {}
    for key, own in expert_layers.groupby(_GROUP):
        uneven = uneven_dispatches(own)
        if len(uneven):
            hot = hot_rank(uneven)
            row = replayed.get(key)
            found[key] = (
                Evened(hot, saved_ns(own))
                if row is None or pd.isna(row["gain_ns"])
                else Evened(hot, int(row["gain_ns"]), int(row["error_ns"]), bool(row["is_bound"]), is_replayed=True)
            )
    return found


def uneven_dispatches(own: pd.DataFrame) -> pd.DataFrame:
    """The group's dispatches that load a rank over a tenth more than the mean."""
    dispatches = own[own["direction"] == DISPATCH]
    return dispatches[(dispatches["load_max_over_mean"] >= UNEVEN).fillna(value=False)]


def hot_rank(uneven: pd.DataFrame) -> int:
    """The rank that most of these dispatches load most."""
    return int(uneven["hot_rank"].mode().iloc[0])


def saved_ns(own: pd.DataFrame) -> int:
    """Of transfers and of experts' compute together."""
    return int(own["saved_transfer_ns"].sum()) + int(own["saved_compute_ns"].fillna(0).sum())


# Ranks that make the others wait: one finding for each episode, those of the same ranks in one.


_MOST_FINDINGS = 5

_MOST_PCT = 50.0
"""Of all compared steps' time: what is waited for so long is as grave as that, though no complete step gains by it."""

_MOVED = "Move layers from the stage of {who} to the others: its host launches for more of them."


def late_ranks(
    episodes: Episodes,
    headline: Headline,
    steps: Steps,
    step_needs: StepNeeds,
    expert_layers: ExpertLayers,
    even_experts: EvenExperts,
    replay: Replay,
    operators: Operators,
    host_work: HostWork,
    pipeline: Pipeline,
    *,
    late_gain_pct: float = WORTH_PCT,
    slow_host_times: float = SLOWER,
    busy_host_times: float = MORE,
    uneven_stages_times: float = UNEVEN_STAGES,
) -> list[Finding]:
    """Each episode whose mending gains at least 1 % of a step, or whose gain is not known; the five costliest.

    Episodes that hide each other are one finding: of all of them where none gains half of that alone, else of the
    first, the others behind it.

    Hosts of which others need as long are nobody's fault: the rule about hosts speaks of them all.
    Experts' tokens that leave a rank go to the others: its gain is then what an even load gains; so are layers of a
    stage whose host launches for more of them. Where ranks compute
    each another amount, what dealing it out evenly gains is part of the advice.
    """
    numbered = step_needs.table["step"].dropna() if len(step_needs) else list[int]()
    complete = Basis.of(headline, steps).numbers if len(headline) else ()
    recorded = Recorded(complete, int(max(numbered)) if len(numbered) else None)
    saved = {each.hot_rank: each for each in evened(expert_layers.to_frame(), even_experts.to_frame()).values()}
    unlike = Unlike(slow_host_times, busy_host_times)
    operators = of_as_many_steps(operators, step_needs.table)
    rows = []
    for row in said(replace(episodes, worth_pct=late_gain_pct)):
        even = even_gain(row, pipeline, operators, replay, uneven_times=uneven_stages_times, busy_times=busy_host_times)
        rows.append(_evened(with_advice(row, operators, host_work, unlike), saved, even))
    rows.sort(key=lambda row: (-max(_expected_ns(row) or 0, joint_ns(row)), row["place_in_set"] or 0))
    found = [
        told(
            _with(_lateness_finding(row, rows, step_needs.to_frame(), recorded), how_far(row, replay)),
            row,
            rows,
            recorded,
        )
        for row in rows[:_MOST_FINDINGS]
    ]
    return [
        with_other_causes(_dealt_out(item, replay) if _is_graded(item) else item, row, rows, replay)
        for item, row in zip(found, rows, strict=False)
    ]


def _with(finding: Finding, said: str) -> Finding:
    """With a sentence more among its caveats."""
    return replace(finding, caveat=" ".join(filter(None, (finding.caveat, said))) or None)


def _is_graded(finding: Finding) -> bool:
    return finding.cause == "compute" and finding.worst_rank is not None


def _dealt_out(finding: Finding, replay: Replay) -> Finding:
    """With what even compute gains, where it gains something."""
    gain = gain_of(replay, Change("compute", EVEN))
    if gain is None or not gain.gain_ns:
        return finding
    about = "" if gain.is_bound else "about "
    even = f"Dealt out evenly over all ranks, {gain.whole} is {about}{Won.recorded(gain)}."
    return replace(finding, recommendation=f"{finding.recommendation} {even}")


def _evened(row: Mapping[str, Any], saved: Mapping[int, Evened], stages: Gain | None) -> Mapping[str, Any]:
    """The row with the gain of an even load of experts, or of even stages, where that is what its ranks have more of.

    Without a replay experts' is a bound, which is said where it is less.
    """
    if stages is not None:
        return {**row, OF_HOST: _MOVED.format(who=who(row)), "gain_ns": stages.gain_ns,
                "gain_error_ns": stages.error_ns, "gain_is_bound": stages.is_bound,
                "unprofiled_gain_ns": None if stages.is_bound else stages.unprofiled_gain_ns}  # fmt: skip
    ranks, gain = numbers(row["ranks"]), row["gain_ns"]
    even = saved.get(ranks[0]) if saved.keys() >= {*ranks} and row["cause"] == "compute" else None
    if gain is None or even is None or (even.gain_ns >= gain and not even.is_replayed):
        return row
    return {**row, "gain_ns": even.gain_ns, "gain_error_ns": even.error_ns, "gain_is_bound": even.is_bound,
            "unprofiled_gain_ns": None}  # fmt: skip


def said(episodes: Episodes) -> list[Mapping[str, Any]]:
    """Rows of lateness that is the ranks' own, and worth mending by what a user asks for: all rules ask this one."""
    return [row for row in episodes.rows() if is_said(row, episodes.worth_pct)]


def is_said(row: Mapping[str, Any], least_pct: float) -> bool:
    """Whether the lateness is these ranks' own, and mending it worth anything, with what hides it or alone.

    What no complete step holds has no gain: it is worth what the others wait for it, of all steps.
    """
    if is_of_every_host(row):
        return False
    expected = _expected_ns(row)
    pct = _waited_pct(row) if expected is None else 100 * max(expected, joint_ns(row)) / max(whole_ns(row), 1)
    return pct >= least_pct


def _waited_pct(row: Mapping[str, Any]) -> float:
    """Of all compared steps what the others wait for an episode that is in one that is not complete."""
    return 100 * float(row["cost_ns"]) / row["steps"] / max(row["step_ns"], 1)


def _expected_ns(row: Mapping[str, Any]) -> int | None:
    """What mending it gains, without what recording takes the hosts where that is known."""
    gain: int | None = row["gain_ns"] if row["unprofiled_gain_ns"] is None else row["unprofiled_gain_ns"]
    return gain


def of_ranks(row: Mapping[str, Any]) -> str:
    """How findings about the same late ranks call them."""
    return f"lateness of ranks {row['ranks']}"


def late_by(episodes: Episodes, rank: int, *causes: str) -> str | None:
    """What is said of a rank's lateness by one of these causes, as findings call it; `None` without a known gain."""
    rows = (row for row in said_with_gain(episodes) if row["cause"] in causes and rank in numbers(row["ranks"]))
    first = next(rows, None)
    return None if first is None else of_lead(episodes, first)


def said_with_gain(episodes: Episodes) -> list[Mapping[str, Any]]:
    """Rows of lateness that is said and whose gain is known."""
    return [row for row in said(episodes) if row["gain_ns"] is not None]


def of_lead(episodes: Episodes, row: Mapping[str, Any]) -> str:
    """How findings call what leads the episodes that hide each other, this one among them; itself without such."""
    return of_ranks(set_of(row, said(episodes) or [row])[0])


def of_slow_links(episodes: Episodes, collective: str, gain_ns: int) -> str | None:
    """What is said of groups whose calls of a collective take longer than their sister groups', as findings call it.

    `None` where there are none, or mending them gains less than most of what the collective would gain altogether.
    """
    called = collective_words(collective)
    for row in said_with_gain(episodes):
        is_slow = row["cause"] == "transfer" and collective_of(row["name"] or "") == called
        if is_slow and max(row["gain_ns"], row["joint_gain_ns"] or 0) >= MOSTLY * gain_ns:
            return of_lead(episodes, row)
    return None


def all_late_by(episodes: Episodes, ranks: Iterable[int], *causes: str) -> str | None:
    """The same of several ranks, where it is one for all of them."""
    found = {late_by(episodes, int(rank), *causes) for rank in ranks}
    return found.pop() if len(found) == 1 else None


def changes_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What the episode's replay changes; none where it was not replayed."""
    return tuple(row["what_if"].split("; ")) if isinstance(row["what_if"], str) else ()


def _lateness_finding(
    row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], needs: pd.DataFrame, recorded: Recorded
) -> Finding:
    gain, expected = row["gain_ns"], _expected_ns(row)
    share = _waited_pct(row) if expected is None else 100 * expected / whole_ns(row)
    return Finding(
        severity=lower(severity(share)) if gain is None and share < _MOST_PCT else severity(share),
        title=title(row, recorded),
        summary=in_short(row),
        evidence=_evidence(row, needs),
        recommendation=advice(row),
        caveat=caveat(row),
        gain_ns=gain,
        gain_error_ns=row["gain_error_ns"],
        gain_is_bound=bool(row["gain_is_bound"]),
        unprofiled_gain_ns=row["unprofiled_gain_ns"],
        is_of_hosts=is_of_hosts(row),
        ranks=numbers(row["ranks"]),
        named=beside_late(row),
        worst_rank=row["worst_rank"],
        steps=None if row["is_in_every_step"] else numbers(row["numbers"]) or None,
        cause=row["cause"],
        changes=changes_of(row),
        interval_ns=_interval(row, needs),
        table="episodes",
        about=of_ranks(row),
        part_of=of_ranks(set_of(row, rows)[0]),
    )


def _of_steps(row: Mapping[str, Any], needs: pd.DataFrame) -> pd.DataFrame:
    steps = numbers(row["numbers"])
    return rows_where(needs, needs["step"].isin(steps)) if steps else needs


_SHOWN_COLUMNS = ["step", "rank", "compute_ns", "exposed_copy_ns", *(cause.column for cause in IDLE_CAUSES),
                  "exposed_wait_ns", "exposed_unmatched_ns"]  # fmt: skip
_MOST_ROWS = 12


def _evidence(row: Mapping[str, Any], needs: pd.DataFrame) -> tuple[dict[str, Any], ...]:
    """Step by step the first of the late ranks beside the one that waits most."""
    held = _of_steps(row, needs)
    own = numbers(row["ranks"])
    waited = rows_where(held, ~held["rank"].isin(own)).groupby("rank")["exposed_wait_ns"].sum()
    beside = [own[0], *([int(waited.idxmax())] if len(waited) else [])]
    return plain(
        only(rows_where(held, held["rank"].isin(beside)).sort_values(["step", "rank"]), _SHOWN_COLUMNS).head(_MOST_ROWS)
    )


def _interval(row: Mapping[str, Any], needs: pd.DataFrame) -> tuple[int, int] | None:
    """The first step of the episode on its first rank."""
    held = _of_steps(row, needs)
    own = rows_where(held, held["rank"] == numbers(row["ranks"])[0])
    return None if own.empty else (int(own["begin_ns"].iloc[0]), int(own["end_ns"].iloc[0]))


def stages(pipeline: Pipeline) -> Mapping[int, int]:
    """Which pipeline each rank is a stage of."""
    return dict(pipeline.table[["rank", "pipeline"]].itertuples(index=False))


# Which finding tells of a late host: its rank's lateness, its pipeline's uneven stages, or all hosts.


HOSTS = "hosts"
"""How findings about all hosts are called by what is part of them."""


def story_of_host(
    rank: int, episodes: Episodes, pipeline: Pipeline, uneven_times: float, needed_ns: pd.Series | None = None
) -> str:
    """What a finding about this rank's host is part of; `needed_ns` is what each host needs for a step.

    Where the other stages' hosts need about as long, it is not the size of its stage that makes this one late.
    """
    late = late_by(episodes, rank, HOST.key)
    if late is not None or (needed_ns is not None and not _needs_more(rank, needed_ns, uneven_times)):
        return lateness_or_hosts(rank, episodes)
    return heavy_stage(rank, pipeline, uneven_times) or HOSTS


def lateness_or_hosts(rank: int, episodes: Episodes, cause: str = HOST.key) -> str:
    """What a finding about what this rank's host does is part of: its lateness by that cause, else all hosts."""
    return late_by(episodes, rank, cause) or HOSTS


def _needs_more(rank: int, needed_ns: pd.Series, times: float) -> bool:
    others = needed_ns.drop(rank, errors="ignore")
    return rank in needed_ns and len(others) > 0 and bool(needed_ns[rank] >= times * others.median())


# Why a rank computes longer: in another number format, more of it, slower, or by other operators than its peers.


OTHER_WORK_MORE = 1.05
"""Times the others' FLOPs, at least."""

_MOST_NAMES = 3
_FORMATS = {"tf32": "TF32"}
"""Number formats by another name than they are written with."""

_OTHER_WORK_SHOWN = ["rank", "family", "element_type", "operator", "calls", "flops", "gpu_ns"]


def other_work(
    episodes: Episodes,
    efficiency: Efficiency,
    mfu: Mfu,
    pipeline: Pipeline,
    *,
    explained_pct: float = EXPLAINED_PCT,
    more_flops_times: float = OTHER_WORK_MORE,
) -> list[Finding]:
    """What differs on a rank that is late by computing longer, where that explains half of it.

    That is the number format of its matrix products, its FLOPs, how many of them its products do a second where sizes
    differ from rank to rank, or the operators that only it runs. Stages of a pipeline differ by design, and where the
    same kernels take longer the work is the same.
    """
    if len(pipeline) or not len(efficiency):
        return []
    table = efficiency.to_frame()
    table = rows_where(table, table["family"] != "communication")
    part = explained_pct / 100
    found = []
    for row in said(episodes):
        late = numbers(row["ranks"])
        others = sorted({int(rank) for rank in table["rank"].unique()} - {*late})
        if row["cause"] == "compute" and row["same_work_ratio"] is None and others:
            differs = _formats(table, late, others, part) or _amounts(table, mfu, row, others, part, more_flops_times)
            differs = differs or _rates(table, row, others, part, more_flops_times)
            differs = differs or (_operators(table, late, others, row, part) if row["name"] is None else None)
            if differs:
                found.append(_other_work_finding(differs, table, row, others, of_lead(episodes, row)))
    return found


class _Said(Struct, frozen=True):
    """What differs, what to do, and the one other rank that is named beside the late ones, if there is one."""

    title: str
    advice: str
    other: tuple[int, ...]


def _other_work_finding(
    said: _Said, table: pd.DataFrame, row: Mapping[str, Any], others: Sequence[int], part_of: str
) -> Finding:
    shown = table[table["rank"].isin([numbers(row["ranks"])[0], others[0]])]
    return Finding(
        severity="low",
        title=said.title,
        evidence=plain(shown.sort_values("gpu_ns", ascending=False, kind="stable")[_OTHER_WORK_SHOWN].head(8)),
        recommendation=said.advice,
        gain_ns=row["gain_ns"],
        named=(*numbers(row["ranks"]), *said.other),
        table="efficiency",
        part_of=part_of,
        tells_why=True,
    )


def _formats(table: pd.DataFrame, late: Sequence[int], others: Sequence[int], part: float) -> _Said | None:
    """Where the late ranks' matrix products mostly run in another number format, and take longer for it."""
    products = table[(table["family"] == "gemm") & table["element_type"].notna()]
    by_type = products.groupby(["rank", "element_type"], observed=True)["gpu_ns"].sum().unstack(fill_value=0)  # noqa: PD010 - a table of two keys
    if not {*late, *others} <= {*by_type.index}:
        return None
    mostly = by_type.idxmax(axis=1)
    own, theirs = {*mostly.loc[[*late]]}, {*mostly.loc[[*others]]}
    own_ns, their_ns = (float(by_type.loc[[*ranks]].sum(axis=1).median()) for ranks in (late, others))
    if len(own) > 1 or len(theirs) > 1 or own == theirs or own_ns - their_ns < part * _longer(table, late, others):
        return None
    formats = [_FORMATS.get(str(one), str(one)) for one in (*own, *theirs)]
    who = numbered("rank", late)
    title = (
        f"{first_upper(who)}'s matrix products run in {formats[0]}, {of_the_others(others)} in {formats[1]}: "
        f"{time_text(own_ns)} in the capture, and {time_text(their_ns)}."
    )
    advice = f"Let {who} compute in {formats[1]}, too: the same autocast, matrix products' precision, parameters."
    return _Said(title, advice, _only(others))


def _amounts(
    table: pd.DataFrame, mfu: Mfu, row: Mapping[str, Any], others: Sequence[int], part: float, more: float
) -> _Said | None:
    """Where FLOPs of operators differ as the time does, or half as much."""
    late, own = numbers(row["ranks"]), mfu.to_frame()
    steps = numbers(row["numbers"]) if row["numbers"] else own["step"].dropna().unique().tolist()
    own = own[own["step"].isin(steps)] if own["step"].notna().any() else own
    done = own.groupby("rank")[["model_flops", "recompute_flops"]].mean().astype("float64").sum(axis=1)
    if not {*late, *others} <= {*done.index}:
        return None
    flops, theirs = float(done.loc[[*late]].median()), float(done.loc[[*others]].median())
    if flops < more * theirs or not row["peers_ns"] or not theirs:
        return None
    if flops / theirs - 1 < part * (row["own_ns"] / row["peers_ns"] - 1):
        return None
    calls = table[table["family"] == "gemm"].groupby("rank")["calls"].sum()
    counts = [float(calls.reindex([*ranks]).median()) for ranks in (late, others)]
    times = digits(flops / theirs)
    how = f", in as many matrix products: their inputs are {times} times as large" if counts[0] == counts[1] else ""
    who = numbered("rank", late)
    title = (
        f"{first_upper(who)}'s operators do {in_a_line(flops, Unit.FLOPS)}{each_of(row)}, {of_the_others(others)} "
        f"{in_a_line(theirs, Unit.FLOPS)}{how or f', {times} times as much'}."
    )
    advice = f"Give {who} as much as the others: batches, sequences, experts, what else it computes."
    return _Said(title, advice, _only(others))


def _rates(
    table: pd.DataFrame, row: Mapping[str, Any], others: Sequence[int], part: float, more: float
) -> _Said | None:
    """Where the late ranks' matrix products do fewer FLOPs a second, in products that are no smaller."""
    late, products = numbers(row["ranks"]), table[(table["family"] == "gemm") & table["flops"].notna()]
    sums = products.groupby("rank")[["flops", "gpu_ns", "calls"]].sum().astype("float64")
    if not {*late, *others} <= {*sums.index} or SIZES in (row["name"] or "") or not row["peers_ns"]:
        return None
    each = pd.DataFrame({"rate": sums["flops"] / sums["gpu_ns"], "size": sums["flops"] / sums["calls"]})
    own, theirs = (each.loc[[*ranks]].median() for ranks in (late, others))
    slower_ns = row["own_ns"] * (1 - own["rate"] / theirs["rate"])
    is_smaller = own["size"] * more < theirs["size"]
    if is_smaller or own["rate"] * more > theirs["rate"] or slower_ns < part * (row["own_ns"] - row["peers_ns"]):
        return None
    who = numbered("rank", late)
    rates = [f"{digits(one['rate'] / 1000)} TFLOP/s" for one in (own, theirs)]
    title = (
        f"{first_upper(who)}'s matrix products run at {rates[0]}, {of_the_others(others)} at {rates[1]}, "
        "and are no smaller."
    )
    advice = f"Products as large take {who} longer, by other kernels or on a slower GPU: {LOOK_AT_GPU}"
    return _Said(title, advice, _only(others))


def _operators(
    table: pd.DataFrame, late: Sequence[int], others: Sequence[int], row: Mapping[str, Any], part: float
) -> _Said | None:
    """Where operators that no other rank runs take the time; with those that only the others run."""
    if not row["is_in_every_step"]:
        return None
    by_rank = table.groupby(["operator", "rank"], observed=True)["gpu_ns"].sum().unstack(fill_value=0)  # noqa: PD010 - a table of two keys
    if not {*late, *others} <= {*by_rank.columns}:
        return None
    own, theirs = (by_rank[[*ranks]].median(axis=1) for ranks in (late, others))
    only = own[(by_rank[[*others]] == 0).all(axis=1)].sort_values(ascending=False, kind="stable")
    without = theirs[(by_rank[[*late]] == 0).all(axis=1)].sort_values(ascending=False, kind="stable")
    if only.sum() - without.sum() < part * _longer(table, late, others):
        return None
    instead = f"; {the_others(others)} {_run(others)} {_names(without)} instead" if without.sum() else ""
    who = numbered("rank", late)
    title = (
        f"{first_upper(who)} {_run(late)} {_names(only)}, which no other rank runs "
        f"({time_text(float(only.sum()))} in the capture){instead}."
    )
    advice = f"Let {who} take the path of the others: the same backends (of attention), options and versions."
    return _Said(title, advice, _only(others) if instead else ())


def _longer(table: pd.DataFrame, late: Sequence[int], others: Sequence[int]) -> float:
    """By how much the late ranks' kernels take longer in the capture; never 0."""
    total = table.groupby("rank")["gpu_ns"].sum()
    return max(float(total.reindex([*late]).median() - total.reindex([*others]).median()), 1.0)


def _names(ns: pd.Series) -> str:
    """`aten::bmm, aten::where, aten::softmax and others`."""
    held = [str(name) for name, own in ns.items() if own > 0]
    return " and ".join(held) if len(held) < _MOST_NAMES else f"{', '.join(held[:_MOST_NAMES])} and others"


def _only(others: Sequence[int]) -> tuple[int, ...]:
    """The ranks that `the_others` names."""
    return tuple(others) if len(others) == 1 else ()


def _run(ranks: Sequence[int]) -> str:
    return "runs" if len(ranks) == 1 else "run"


# What else runs on a GPU that is slower: kernels of another stream, which no other rank runs, share it.


def work_beside(
    episodes: Episodes, what_ran: WhatRan, step_needs: StepNeeds, *, explained_pct: float = EXPLAINED_PCT
) -> list[Finding]:
    """A GPU on which the same kernels take longer runs others beside them, which no rank in time runs.

    For half of what it takes longer, and more; half of their time or more while others run.
    """
    found = []
    for row in filter(is_slow_gpu, said(episodes)):
        late = numbers(row["ranks"])
        own = _own_work(what_ran.table, late, numbers(row["numbers"] or ""))
        together_ns = _together_ns(what_ran.table, step_needs.table, late, numbers(row["numbers"] or ""))
        own_ns = own[own["what"] == KERNEL].groupby("rank")["total_ns"].sum().reindex(late, fill_value=0)
        least_ns = explained_pct / 100 * row["excess_ns"]
        if not own.empty and (own_ns >= least_ns).all() and (2 * together_ns >= own_ns).all():
            found.append(_work_beside_finding(row, own, float(own_ns.median()), of_lead(episodes, row)))
    return found


def _work_beside_finding(row: Mapping[str, Any], own: pd.DataFrame, own_ns: float, part_of: str) -> Finding:
    late = numbers(row["ranks"])
    who, most = numbered("rank", late), own.sort_values("total_ns", ascending=False, kind="stable")
    named = most[most["what"] == OPERATOR] if (most["what"] == OPERATOR).any() else most
    name = str(named["name"].iloc[0]).partition(SIZES)[0]
    run = "run" if len(late) > 1 else "runs"
    return Finding(
        severity="low",
        title=f"{first_upper(who)} {run} {name} beside them, which no other rank runs: "
        f"{time_text(own_ns)}{each_of(row)}.",
        evidence=plain(most[["rank", "what", "name", "total_ns", "calls"]].head(8)),
        recommendation=f"Let {who} run {name} on another GPU, or in steps of its own: kernels of several streams share "
        "the GPU, and each takes longer. Where they are as slow without it, look at the clocks.",
        gain_ns=row["gain_ns"],
        named=late,
        table="what_ran",
        part_of=part_of,
        tells_why=True,
    )


def _held(table: pd.DataFrame, steps: Collection[int]) -> pd.DataFrame:
    return table[table["step"].isin(steps)] if steps else table


def _own_work(work: pd.DataFrame, late: Collection[int], steps: Collection[int]) -> pd.DataFrame:
    """What these ranks compute and no other one does, by name: means of the steps."""
    held = _held(work[(work["part"] == COMPUTE.column) & work["what"].isin([KERNEL, OPERATOR])], steps)
    theirs = held.loc[~held["rank"].isin(late), ["what", "name"]].drop_duplicates()
    own = held[held["rank"].isin(late)].merge(theirs, on=["what", "name"], how="left", indicator=True)
    own = own[own["_merge"] == "left_only"]
    count = max(held["step"].nunique(), 1)
    return own.groupby(["rank", "what", "name"], observed=True)[["total_ns", "calls"]].sum().div(count).reset_index()


def _together_ns(work: pd.DataFrame, needs: pd.DataFrame, late: Collection[int], steps: Collection[int]) -> pd.Series:
    """Of each rank by how much its kernels' times are more than the time in which any of them runs: a step's mean."""
    kernels = _held(work[(work["part"] == COMPUTE.column) & (work["what"] == KERNEL)], steps)
    needs = _held(needs, steps)
    total = kernels.groupby("rank")["total_ns"].sum() - needs.groupby("rank")[COMPUTE.column].sum()
    return total.reindex(late, fill_value=0).astype("float64") / max(kernels["step"].nunique(), 1)
