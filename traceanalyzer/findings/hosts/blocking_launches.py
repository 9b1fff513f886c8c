"""Launches that wait for their kernels: CUDA_LAUNCH_BLOCKING=1, left on after debugging."""

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.replay.change import PEERS, Change
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.findings.basis import plain
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.late.lateness import of_ranks
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.model.tables import rows_where

LEAST_AWAITED_PCT = 90.0
"""Of a rank's kernels of over 20 µs."""

LEAST_KERNELS = 20


def blocking_launches(
    launches: Result,
    replay: Replay,
    *,
    blocking_pct: float = LEAST_AWAITED_PCT,
    blocking_kernels: int = LEAST_KERNELS,
) -> list[Finding]:
    """On some rank over 90 % of the kernels of over 20 µs had ended when the calls that launched them returned."""
    table = launches.to_frame()
    if table.empty:
        return []
    is_blocking = (table["awaitable_kernels"] >= blocking_kernels) & (table["awaited_pct"] >= blocking_pct)
    rows = rows_where(table, is_true(is_blocking))
    if rows.empty:
        return []
    ranks = tuple(int(rank) for rank in rows["rank"])
    is_all = len(ranks) == len(table)
    gain = None if is_all else gain_of(replay, Change("host", PEERS, ranks=frozenset(ranks)))
    one = len(ranks) == 1
    who = "every rank" if is_all and not one else numbered("rank", ranks)
    awaited, kernels = int(rows["awaited_kernels"].sum()), int(rows["awaitable_kernels"].sum())
    as_others = f" With {'its host' if one else 'their hosts'} as fast as the others'"
    besides = ", not counting what overlaps then."
    won = (f"{as_others}, {gain.whole} is ", Won.recorded(gain), besides) if gain and gain.gain_ns > 0 else ()
    return [
        Finding(
            severity="high",
            title=Title(
                f"On {who} launches wait for their kernels: {awaited:,} of {kernels:,} kernels of over 20 µs had "
                "ended when the calls that launched them returned.",
                *won,
            ),
            evidence=plain(rows[["rank", "awaitable_kernels", "awaited_kernels", "awaited_pct"]]),
            recommendation="Unset CUDA_LAUNCH_BLOCKING"
            + ("" if is_all else " there")
            + ": it is for debugging. If it is not set, look for a debugger, a sanitizer, or a synchronisation inside "
            "the launching library.",
            caveat="Nothing overlaps in such a run: record again before other advice is followed." if is_all else None,
            **gained(gain),
            ranks=() if is_all else ranks,
            named=ranks if is_all and one else (),
            is_about_capture=is_all,
            table="launches",
            about=None if is_all else of_ranks({"ranks": ",".join(map(str, ranks))}),
        )
    ]
