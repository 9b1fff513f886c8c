"""Why a late host is late: the calls that all make take it longer, it makes more of them, or launches no graphs."""

from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.blame.episode_rows import is_of_every_host
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.what_ran import RANGE
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.alike import of_the_others
from traceanalyzer.findings.basis import Basis, plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.hosts.host_words import HOST_PCT
from traceanalyzer.findings.late.beside import (
    MORE,
    SLOWER,
    MoreCalls,
    SlowHost,
    more_calls,
    of_as_many_steps,
    slow_host,
)
from traceanalyzer.findings.late.heavy_stages import UNEVEN_STAGES
from traceanalyzer.findings.late.host_story import story_of_host
from traceanalyzer.findings.late.late_words import whole_of, won_of
from traceanalyzer.findings.late.lateness import of_lead, said
from traceanalyzer.findings.won import Title
from traceanalyzer.findings.worst import worst_rank
from traceanalyzer.meaning.listed import listed, numbered
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import digits, time_text
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.meaning.vocabulary import HOST

EAGER_PCT = 50.0
"""Of the part that others launch as graphs."""


def slow_hosts(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    episodes: Episodes,
    operators: Operators,
    pipeline: Pipeline,
    *,
    slow_host_times: float = SLOWER,
    host_idle_pct: float = HOST_PCT,
    uneven_stages_times: float = UNEVEN_STAGES,
) -> list[Finding]:
    """A rank makes the calls that all make, and takes at least 1.2 times as long for them.

    Of ranks whose host is late by nothing that has a name, or in a range that all have, and of the one whose GPU idles
    most for its host. Ranks of which fewer steps were recorded, or more, are no measure.
    """
    operators = of_as_many_steps(operators, steps.table)
    rows = [row for row in said(episodes) if row["cause"] == HOST.key]
    is_named = [row["name"] is not None and row["what"] != RANGE for row in rows]
    named = {rank for row, has_name in zip(rows, is_named, strict=True) if has_name for rank in numbers(row["ranks"])}
    late = {numbers(row["ranks"])[0]: of_lead(episodes, row)
            for row, has_name in zip(rows, is_named, strict=True)
            if not has_name and len(numbers(row["ranks"])) == 1}  # fmt: skip
    most = worst_rank(headline, steps, idle, HOST.column, host_idle_pct)
    if most and most[0] not in {*late, *named}:
        late[most[0]] = story_of_host(most[0], episodes, pipeline, uneven_stages_times)
    slow = {rank: (slow_host(operators, rank, slow_host_times), part_of) for rank, part_of in late.items()}
    found = []
    for rank, (own, part_of) in slow.items():
        if own is not None:
            others = [int(other) for other in operators.table["rank"].unique() if other != rank]
            whose = of_the_others(others)
            acquitted = _acquitted(rank, others, episodes, Basis.of(headline, steps).steps)
            told = _slow(rank, own, whose, acquitted)
            found.append(replace(told, named=(rank, *others) if len(others) == 1 else (rank,), part_of=part_of))
    return found


def _slow(rank: int, slow: SlowHost, whose: str, acquitted: Title) -> Finding:
    return Finding(
        severity="medium",
        title=Title(
            f"Rank {rank}'s host makes the same {slow.calls:,} operator calls as {whose} in the capture and takes "
            f"{slow.times:.2g} times as long for them{_most(slow)}.",
            acquitted,
        ),
        evidence=plain(slow.rows),
        table="operators",
    )


def _acquitted(rank: int, others: list[int], episodes: Episodes, steps: int | None) -> Title:
    """Of a host that is late by no more than hosts differ: what it would gain all the same."""
    two = "Two hosts alone do not tell whether one of them is slow: they" if len(others) == 1 else "Hosts"
    for row in episodes.rows():
        gain_ns = row["gain_ns"]
        if gain_ns and numbers(row["ranks"]) == (rank,) and is_of_every_host(row):
            return Title(
                f" {two} can differ as much where nothing is wrong. With this one like {of_the_others(others)} "
                f"{whole_of(row, steps)} is ",
                won_of(row),
                "; record again to see whether it is late again.",
            )
    return Title()


def _most(slow: SlowHost) -> str:
    """`: of 131 ms more 73.3 ms are in aten::_cudnn_attention_backward`; nothing where it is spread over many."""
    parts = [f"{time_text(ns)} in {name}" for name, ns in slow.most.items()]
    return f": of {time_text(slow.more_ns)} more, {' and '.join(parts)}" if parts else ""


def busy_hosts(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    episodes: Episodes,
    operators: Operators,
    pipeline: Pipeline,
    *,
    busy_host_times: float = MORE,
    host_idle_pct: float = HOST_PCT,
    uneven_stages_times: float = UNEVEN_STAGES,
) -> list[Finding]:
    """A rank whose host is late, or whose GPU idles most for it, makes 1.15 times as many operator calls as others.

    Named with those that make as many. Ranks of which fewer steps were recorded, or more, are no measure.
    """
    operators = of_as_many_steps(operators, steps.table)
    late = [numbers(row["ranks"]) for row in said(episodes) if row["cause"] == HOST.key]
    most = worst_rank(headline, steps, idle, HOST.column, host_idle_pct)
    found: dict[tuple[int, ...], Finding] = {}
    for rank in sorted({own[0] for own in late} | ({most[0]} if most else set())):
        busy = more_calls(operators, rank, busy_host_times)
        if busy is not None and busy.ranks not in found:
            found[busy.ranks] = _busy(busy, story_of_host(rank, episodes, pipeline, uneven_stages_times))
    return list(found.values())


def _busy(busy: MoreCalls, part_of: str) -> Finding:
    is_one = len(busy.ranks) == 1
    who = f"Rank {busy.ranks[0]}'s host makes" if is_one else f"The hosts of ranks {listed(busy.ranks)} each make"
    what = f", most of the more in {busy.name}" if busy.name else ""
    return Finding(
        severity="low",
        title=f"{who} {digits(busy.times)} times as many operator calls as "
        f"{busy.others} ({busy.calls:,} and {busy.others_calls:,} in the capture){what}.",
        evidence=plain(busy.rows),
        named=(*busy.ranks, *busy.only_other),
        recommendation=f"Give the hosts equal work, or launch less on {'this one' if is_one else 'these'}.",
        table="operators",
        part_of=part_of,
    )


def eager_hosts(episodes: Episodes, launches: Launches, *, eager_graphs_pct: float = EAGER_PCT) -> list[Finding]:
    """A late host launches half as large a part of its operations as CUDA graphs as the others do, or less."""
    table = launches.table.set_index("rank")
    share = (table["graph_operations"] / table["operations"].where(table["operations"] > 0)).astype("float64")
    found = []
    for row in said(episodes):
        late = [rank for rank in numbers(row["ranks"]) if rank in share.index]
        others = share.drop(index=late).median()
        if row["cause"] != HOST.key or not late or not others > 0:
            continue
        if 100 * share[late].max() <= eager_graphs_pct * others:
            found.append(_eager(late, share, others, row["gain_ns"], of_lead(episodes, row)))
    return found


def _eager(late: list[int], share: pd.Series, others: float, gain_ns: int | None, part_of: str) -> Finding:
    one = len(late) == 1
    who, whose = numbered("rank", late), "its" if one else "their"
    most = share[late].max()
    own = f"{100 * most:.0f} % of {whose} operations" if most else f"none of {whose} operations"
    return Finding(
        severity="medium",
        title=f"{first_upper(who)} launch{'es' if one else ''} {own} as CUDA graphs, the others {100 * others:.0f} %.",
        evidence=tuple({"rank": rank, "in_graphs_pct": round(100 * share[rank], 1)} for rank in late),
        recommendation=f"Find why {who} replay{'s' if one else ''} no graph where others do: a capture that failed "
        "or is switched off there, shapes that no graph was captured for, a graph break.",
        gain_ns=gain_ns,
        named=tuple(late),
        table="launches",
        part_of=part_of,
        tells_why=True,
    )
