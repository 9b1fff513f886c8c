"""Ranks that take turns at being late: uneven samples, a host that is held up now here, now there."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from traceanalyzer.analyses.communication.exposed_comm import ExposedComm
from traceanalyzer.analyses.communication.stragglers import Stragglers
from traceanalyzer.analyses.communication.waits import Waits
from traceanalyzer.analyses.time.breakdown import Breakdown
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import milliseconds, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.straggler_words import ADVICE
from traceanalyzer.findings.stragglers import longest_wait, times_of, turns
from traceanalyzer.vocabulary import BETWEEN_KERNELS, DATA, HOST, LAUNCH, SYNC, UNKNOWN

_LATE = {
    "compute": "compute longer than the others",
    "copies": "copy longer than the others",
    "transfer": "spend longer in communication that the others do not have",
    "unmatched": "come late out of communication that could not be matched",
    HOST.key: "have a late host",
    DATA.key: "are late with their data",
    SYNC.key: "are held up in synchronising calls",
    LAUNCH.key: "get their launches late",
    UNKNOWN.key: "idle for a reason that their traces do not hold",
    BETWEEN_KERNELS.key: "lose time between short kernels",
}

_EVIDENCE = ["rank", "steps_affected", "first_step", "affected_wait_ns", "cost_mean_ns", "waiting_ranks"]


def in_turn(
    stragglers: Stragglers, exposed_comm: ExposedComm, waits: Waits, steps: Steps, breakdown: Breakdown
) -> list[Finding]:
    """Several ranks, each late in some of the steps by the same cause: one finding, whoever is late.

    In three steps at least and for 5 % of a step, all together.
    """
    times = times_of(steps if len(steps) else breakdown, exposed_comm)
    return [_finding(rows, waits.table, times) for rows in turns(stragglers)]


def _finding(rows: Sequence[Mapping[str, Any]], waits: pd.DataFrame, times: pd.DataFrame) -> Finding:
    worst = max(rows, key=lambda row: row["cost_max_ns"])
    waited = times.groupby("rank")["exposed_wait_ns"].mean()
    # A rank does not wait for itself: what it waits altogether is less than the sum of what the turns cost the others.
    gain_ns = round(min(sum(row["cost_mean_ns"] for row in rows), float(waited.max())))
    collective = (worst["collective"] or "communication").replace("_", "-")
    return Finding(
        rule="in_turn",
        severity=severity(100 * gain_ns / worst["window_ns"]),
        title=f"{len(rows)} ranks {_LATE.get(worst['cause'], 'are late')} in turn, each in some steps: rank "
        f"{waited.idxmax()} waits {milliseconds(gain_ns)} a step for them inside {collective}.",
        evidence=plain(pd.DataFrame(rows)[_EVIDENCE]),
        recommendation=ADVICE.get(worst["cause"]),
        caveat="No rank is slow by itself: what it has to do differs from step to step.",
        gain_ns=gain_ns,
        ranks=tuple(sorted(row["rank"] for row in rows)),
        cause=worst["cause"],
        interval_ns=longest_wait(worst, waits, times),
        table="stragglers",
        about=f"{worst['cause']} in turn",
    )
