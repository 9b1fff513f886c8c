"""Whether the ranks are of one job at all: they share time, and answer each other's communication."""

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.call_lists import NOT_ON_ALL
from traceanalyzer.analyses.integrity.integrity_checks import Defect
from traceanalyzer.analyses.names import SourceName
from traceanalyzer.meaning.severities import HIGH, MEDIUM
from traceanalyzer.model.tables import rows_where

_AFFECTS: tuple[SourceName, ...] = ("balance", "steps", "members")

DIFFERENT_JOBS = "different_jobs"
"""The check that finds that ranks do not belong together."""

_FEW = 0.5
"""Ranks of one capture answer more than this share of the calls that all of their ranks could answer."""

_BY_CHANCE = 0.1
"""Ranks of different jobs answer at most this share of each other's calls."""


def are_of_different_jobs(ranks: pd.DataFrame, call_waits: pd.DataFrame) -> bool:
    """No time in common, and calls of which no other rank answers any. The tables are the Results'."""
    if len(ranks) < 2 or not _share_no_time(ranks):
        return False
    calls, matched = _answerable(call_waits)
    return calls > 0 and not matched


def signs(ranks: pd.DataFrame, call_waits: pd.DataFrame) -> list[Defect]:
    """No time in common, and calls that no other rank answers; both together are no accident.

    Args:
        ranks: the Result's table.
        call_waits: the Result's table.
    """
    if len(ranks) < 2:
        return []
    calls, matched = _answerable(call_waits)
    apart = _share_no_time(ranks)
    unanswered = f"{calls - matched:,} of {calls:,} communication calls are not answered by all ranks of their group"
    if are_of_different_jobs(ranks, call_waits):
        text = f"The ranks' captures share no time, and {unanswered}: these are ranks of different jobs or captures."
        return [Defect(DIFFERENT_JOBS, HIGH, calls, calls, text, _AFFECTS)]
    found = []
    if apart:
        why = (
            "their calls do match, so that the clocks of the hosts are wrong by more than the captures are long."
            if calls and matched - _ambiguous(call_waits) > _FEW * calls
            else "unless the hosts' clocks are wrong, these are not ranks of one capture."
        )
        found.append(
            Defect("no_shared_time", MEDIUM, len(ranks), None, f"The ranks' captures share no time: {why}", _AFFECTS)
        )
    if calls and matched <= _FEW * calls:
        formats = " and ".join(sorted(ranks["format"].dropna().unique()))
        so = (
            f"ranks' files are of several formats ({formats}), which name process groups otherwise; record all ranks "
            "with one tool"
            if " and " in formats
            else "these may be ranks of different jobs"
            if matched <= _BY_CHANCE * calls
            else "who waited in them, and how long, is not known"
        )
        text = f"{unanswered}, although these are here: {so}."
        found.append(Defect("unanswered_calls", MEDIUM, calls - matched, calls, text, _AFFECTS))
    return found


def _answerable(calls: pd.DataFrame) -> tuple[int, int]:
    """Calls whose whole group is here, and those of them that were matched."""
    if calls.empty:
        return 0, 0
    matched = int(is_true(calls["is_matched"]).sum())
    return matched + int((calls["why_not_split"] == NOT_ON_ALL).sum()), matched


def _ambiguous(calls: pd.DataFrame) -> int:
    """Those of the matched calls that may as well be others: alike at like distances, as in decoding."""
    return int((is_true(calls["is_matched"]) & is_true(calls["is_ambiguous"])).sum())


def _share_no_time(ranks: pd.DataFrame) -> bool:
    """Of captures: GPUs of one file may well run one after the other."""
    known = rows_where(ranks, ranks["window_start_ns"].notna())
    by_file = known.groupby("files")
    starts = by_file["window_start_ns"].min().astype("int64")
    ends = by_file["window_end_ns"].max().astype("int64")
    return len(starts) > 1 and bool(starts.max() >= ends.min()) and bool((ends > starts).all())
