"""What a timeline shows first: which ranks stand on top, in what groups the others lie, which stretch is in view."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.communication.common_clock import Clock
from traceanalyzer.findings import Finding, named_ranks
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES, UNMATCHED, WAIT
from traceanalyzer.report.words.parts import Split, headline_steps

FEW_RANKS = 4
"""From here on ranks begin collapsed, but for those that stand on top."""

MANY_RANKS = 16
"""Above this ranks lie in groups, each a row until it is opened."""

_MOST_LATE = 3

NODE = 8
"""Neighbouring ranks that are taken for a node where the captures do not name their hosts."""


def pins(
    findings: Sequence[Finding], split: Split | None, kept: Iterable[int], results: Results | None = None
) -> list[dict[str, Any]]:
    """`rank` and `why` of the ranks on top: who is late, by the first finding that says so, and who waits most.

    Of ranks that are late by several causes that hide each other the first three. Where no finding calls a rank late,
    the one that the first finding speaks of. Of several ranks the one that the finding calls the worst, else the one on
    which most of the critical path lies.
    """
    there = set(kept)
    path = results.get("path_over_ranks") if results is not None else None
    lengths = {} if path is None else {row["rank"]: row["path_ns"] for row in path.rows()}
    found: dict[int, str] = {}
    for finding in findings:
        late = [rank for rank in finding.ranks if rank in there]
        if late and finding.cause and " and " in finding.cause:  # several that hide each other
            found |= {rank: f"late: {_cause(_own_cause(finding, rank))}" for rank in late[:_MOST_LATE]}
            break
        if late:
            worst = finding.worst_rank if finding.worst_rank in there else _weightiest(late, lengths)
            found[worst] = f"late: {_cause(finding.cause)}" if finding.cause else "late"
            break
    first = [rank for rank in named_ranks(findings[:1]) if rank in there]
    if not found and first and len(there) > 1:
        found[_weightiest(first, lengths)] = "in the first finding"
    victim = _waits_most(split, there - set(found))
    if victim is not None:
        found.setdefault(*victim)
    if not found and there:
        found = {min(there): ""}
    return [{"rank": rank, "why": why} for rank, why in found.items()]


def _own_cause(finding: Finding, rank: int) -> str:
    """Why this rank is late, by what is said of it alone; all causes where nothing is."""
    own = (each.cause for each in finding.also if each.cause and each.ranks == (rank,))
    return next(own, finding.cause or "")


def _weightiest(ranks: Sequence[int], lengths: Mapping[int, int]) -> int:
    return max(ranks, key=lambda rank: lengths.get(rank, 0))


def meant_ranks(finding: Finding) -> list[int]:
    """The ranks to look at for a finding: those that it blames, else the first that its words name; at most two."""
    worst = [] if finding.worst_rank is None else [finding.worst_rank]
    ranks = [*worst, *(rank for rank in finding.ranks if rank not in worst)]
    return (ranks or named_ranks([finding])[:1])[:2]


def _cause(cause: str) -> str:
    labels = {each.key: each.label for each in IDLE_CAUSES}
    return " and ".join(labels.get(each, each) for each in cause.split(" and "))


def _waits_most(split: Split | None, ranks: set[int]) -> tuple[int, str] | None:
    """The rank with the longest waits and what is said of it; where waits cannot be told, with the longest calls."""
    if split is None or not split.has_wait:
        return None
    table = split.table[split.table["rank"].isin(ranks)].set_index("rank")
    for column, why, least_pct in ((WAIT.share, "waits most", 1.0), (UNMATCHED.share, "longest in calls", 10.0)):
        share = table[column].astype("float64")
        if len(share) and share.max() >= least_pct:
            return int(share.idxmax()), why
    return None


def rank_groups(results: Results, kept: Sequence[int]) -> list[dict[str, Any]]:
    """`name` and `ranks` of each group, by host where captures name several, else blocks of 8; none of few ranks."""
    if len(kept) <= MANY_RANKS:
        return []
    hosts = results["ranks"].table.set_index("rank")["host"] if "ranks" in results else pd.Series(dtype="object")
    known = hosts.reindex(kept)
    if known.notna().all() and 1 < known.nunique() < len(kept):
        named = [(str(host), [int(rank) for rank in own.index]) for host, own in known.groupby(known, sort=False)]
    else:
        blocks = sorted({rank // NODE for rank in kept})
        named = [(f"node {block}", [rank for rank in kept if rank // NODE == block]) for block in blocks]
    return [{"name": name, "ranks": ranks} for name, ranks in named]


def opening(results: Results, clock: Clock, kept: Sequence[int]) -> list[int] | None:
    """Begin and end of the complete steps that all ranks have, on the page's clock; `None` without any."""
    steps = headline_steps(results) if "headline" in results else []
    if not steps:
        return None
    frame = results["steps"].to_frame()
    frame = frame[frame["step"].isin(steps) & frame["rank"].isin(kept) & frame["start_ns"].notna()]
    if frame.empty:
        return None
    shifts = frame["rank"].map(clock.shift_ns) + clock.zero_ns
    starts = frame["start_ns"].astype("int64") - shifts
    return [int(starts.min()), int((starts + frame["window_ns"].astype("int64")).max())]
