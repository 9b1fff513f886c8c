"""Ranks of which nothing is concluded: their files lack operations, or tell times that cannot be."""

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.integrity import untrue
from traceanalyzer.analyses.integrity.integrity import Integrity
from traceanalyzer.analyses.integrity.integrity_checks import LOST_AMID, LOST_GRAPHS, TRUNCATED
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.listed import listed, numbered
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.model.tables import rows_where

LEAST_LOST_PCT = 1.0
"""Of a rank's launches that have no operation, amid others that have one."""

SPOILT_PCT = 5.0
"""From here on nothing is concluded of the rank."""

_AS_WRITTEN = "give each process's file as the profiler wrote it: not several merged into one"

LOST = "operations that were lost"
CUT_OFF = "files that are cut off"
"""How findings about them call these."""


def spoilt_ranks(headline: Headline, integrity: Integrity) -> set[int]:
    """Ranks of which nothing is concluded, for any of the reasons that the rules here give."""
    lost = _lost_in_all(headline, integrity, SPOILT_PCT)
    return {*untrue.untrue_ranks(integrity.to_frame())} | set(_with(integrity, TRUNCATED)) | set(lost.index)


def lost_operations(
    headline: Headline,
    integrity: Integrity,
    *,
    lost_operations_pct: float = LEAST_LOST_PCT,
) -> list[Finding]:
    """The profiler lost over 1 % of a rank's GPU operations amid others, and no step without such a loss is left.

    Over 5 % nothing is concluded of that rank.
    """
    share = _lost_in_all(headline, integrity, lost_operations_pct)
    if share.empty:
        return []
    low, high = round(float(share.min())), round(float(share.max()))
    told = f"{max(high, 1)} %" if low == high else f"{max(low, 1)} to {high} %"
    whose = _whose(list(share.index))
    nothing = " Nothing is concluded of that." if (share >= SPOILT_PCT).any() else ""
    graphs = _graphs(integrity)
    what = f"The profiler lost {told} of {whose} GPU operations: their launches are here, they are not, so that"
    if graphs:
        on = whose.removesuffix("'s")
        what = f"The profiler did not record what CUDA graphs ran ({graphs:,} launches of them on {on}):"
    return [
        Finding(
            severity="high",
            title=f"{what} compute is too short and idle time too long.{nothing}",
            evidence=tuple({"rank": int(rank), "lost_pct": round(float(own), 2)} for rank, own in share.items()),
            recommendation="Record again with nsys profile --cuda-graph-trace=node."
            if graphs
            else "Record again, and less at once: fewer steps, without with_stack, record_shapes and "
            "profile_memory; no second profiler (DCGM, Nsight) beside it.",
            named=tuple(map(int, share.index)),
            is_about_capture=True,
            about=LOST,
        )
    ]


def _lost_in_all(headline: Headline, integrity: Integrity, least_pct: float) -> pd.Series:
    """`lost_pct` of ranks that lost that much and more, where no step without a loss is left."""
    share = lost_pct(integrity)
    is_in_all = len(headline) > 0 and not headline.table["steps"].notna().any()
    return share[share >= least_pct] if is_in_all else share.iloc[:0]


def lost_pct(integrity: Result) -> pd.Series:
    """Of each rank that lost some the per cent of its launches whose operation is missing amid others.

    Not of a file that is cut off: its streams' operations do not end at one moment.
    """
    frame = integrity.to_frame()
    cut = frame.loc[frame["check"] == TRUNCATED, "rank"]
    own = rows_where(frame, (frame["check"] == LOST_AMID) & frame["rank"].notna() & ~frame["rank"].isin(cut))
    share = 100 * own["count"].astype("float64") / own["total"].astype("float64")
    return pd.Series(share.to_numpy(), index=own["rank"].astype("int64").to_numpy())


def lost_on(integrity: Result) -> set[int]:
    """Ranks of which the profiler lost operations amid others, be they few."""
    frame = integrity.to_frame()
    return {int(rank) for rank in frame.loc[frame["check"] == LOST_AMID, "rank"].dropna()}


def _graphs(integrity: Integrity) -> int:
    """Launches of graphs of which nothing was recorded, where they are most of what was lost; else 0."""
    frame = integrity.to_frame()
    of_graphs = frame[frame["check"] == LOST_GRAPHS]
    is_most = len(of_graphs) > 0 and bool((2 * of_graphs["count"] >= of_graphs["total"]).all())
    return int(of_graphs["count"].max()) if is_most else 0


def cut_files(integrity: Integrity) -> list[Finding]:
    """A rank's file ends in the middle: what its GPU did is known in part, and nothing is concluded of that rank."""
    ranks = _with(integrity, TRUNCATED)
    if not ranks:
        return []
    whose = f"Rank {ranks[0]}'s file is" if len(ranks) == 1 else f"The files of ranks {listed(ranks)} are"
    it = "it" if len(ranks) == 1 else "them"
    return [
        Finding(
            severity="high",
            title=f"{whose} cut off: what the profiler wrote last, mostly GPU work, is missing, and nothing is "
            f"concluded of {it}.",
            recommendation="Record again: let the profiler end its export before the process is killed, with room on "
            "the disk.",
            named=tuple(ranks),
            is_about_capture=True,
            about=CUT_OFF,
        )
    ]


def impossible_times(integrity: Integrity) -> list[Finding]:
    """Operations of one stream run inside each other, take no time, or lie days apart: no GPU and no recording does so.

    Nor does one write times that are no numbers, or events that end before they start. Nothing is concluded of such a
    rank.
    """
    whats: dict[tuple[int, ...], list[str]] = {}
    for check, what in untrue.IMPOSSIBLE.items():
        if ranks := _with(integrity, check):
            whats.setdefault(tuple(ranks), []).append(what)
    return [_of_times(list(ranks), what) for ranks, what in whats.items()]


def _of_times(ranks: list[int], whats: list[str]) -> Finding:
    whose = _whose(ranks)
    return Finding(
        severity="high",
        title=f"{first_upper(whose)} times cannot be true: {', and '.join(whats)}. Compute, idle time and "
        f"waits are not known, and nothing is concluded of {'it' if len(ranks) == 1 else 'them'}.",
        recommendation=f"Record again; {_AS_WRITTEN}, with the streams' own numbers and the format's unit of time.",
        named=tuple(ranks),
        is_about_capture=True,
    )


def shared_numbers(integrity: Integrity) -> list[Finding]:
    """Operations bear numbers of launches that are not their own, 5 % of a rank's and more.

    Its file holds several recordings or processes, or its numbers are damaged. Nothing is concluded of such a rank.
    """
    found = ((_with(integrity, check), what) for check, what in untrue.NOT_THEIR_OWN.items())
    return [
        Finding(
            severity="high",
            title=f"{first_upper(_whose(ranks))} {what}: which call launched what, and in which step, is not known, "
            f"and nothing is concluded of {'it' if len(ranks) == 1 else 'them'}.",
            recommendation=f"{first_upper(_AS_WRITTEN)}.",
            named=tuple(ranks),
            is_about_capture=True,
        )
        for ranks, what in found
        if ranks
    ]


def _with(integrity: Result, check: str) -> list[int]:
    return untrue.gravely(integrity.to_frame(), check)


def _whose(ranks: list[int]) -> str:
    return f"{numbered('rank', ranks)}'s"
