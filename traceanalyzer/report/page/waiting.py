"""Who makes the others wait, and which waits cannot be measured."""

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.uneven.balance import apart
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.names import collective_words, collectives_words
from traceanalyzer.meaning.quantities import text
from traceanalyzer.report.words.parts import Split, headline_steps, unsplit_calls

LEAST_COST_PCT = 2.0
"""Of a step; stragglers that cost less stay in the CSV."""

COLUMNS = (
    "rank", "cost_max_ns", "cost_max_rank", "cost_pct", "cost_mean_ns", "waiting_ranks", "collective",
    "steps_affected", "cause", "cause_ns", "operation",
)  # fmt: skip
"""Of a straggler's row those that a page shows."""


def costly(stragglers: Stragglers) -> pd.DataFrame:
    """Stragglers for which a rank waits at least as long as a finding asks for; without those that are acquitted."""
    frame = stragglers.to_frame()
    return frame[_costs(frame) & ~_is_acquitted(frame)]


def acquitted(stragglers: Stragglers) -> str:
    """A sentence about ranks that others wait for and whose hosts need what every host needs; empty without any."""
    frame = stragglers.to_frame()
    ranks = frame.loc[_costs(frame) & _is_acquitted(frame), "rank"]
    if ranks.empty:
        return ""
    one = len(ranks) == 1
    who = numbered("rank", ranks)
    whose = "whose host needs" if one else "whose hosts need"
    return f"Others wait for {who}, {whose} no longer for a step than the slowest of the others': nobody's fault."


def _costs(frame: pd.DataFrame) -> pd.Series:
    return is_true(frame["cost_pct"] >= LEAST_COST_PCT)


def _is_acquitted(frame: pd.DataFrame) -> pd.Series:
    return is_true(frame["is_acquitted"])


def too_cheap(stragglers: Stragglers) -> str:
    """A sentence about the rows that cost less than `costly` asks for; empty without any."""
    rest = int((~_costs(stragglers.to_frame())).sum())
    if not rest:
        return ""
    who = (
        "Where waits can be told from transfers, no rank makes another wait"
        if rest == len(stragglers)
        else f"The {rest} other ranks make nobody wait"
    )
    return f"{who} for {LEAST_COST_PCT:.0f} % of a step; tables/stragglers.csv has all."


def not_measured(results: Results, split: Split | None) -> str:
    """Which calls of the headline's steps wait in a way that cannot be measured, and how much time that is."""
    calls = unsplit_calls(results, headline_steps(results))
    if split is None or calls.empty or not split.has_wait:
        return ""
    counts = calls.groupby(["why_not_split", "collective"], sort=False).size()
    whys = [
        f"{', '.join(f'{count} {name}' for name, count in _named(own))} ({why})"
        for why, own in counts.groupby("why_not_split", sort=False)
    ]
    basis = Basis.of(results["headline"], results["steps"])
    exposed = split.table.set_index("rank")["exposed_unmatched_ns"]
    worst = exposed.idxmax()
    per = " a step" if split.steps else ""
    return (
        f"Not measured: waits in {'; '.join(whys)}. That is up to {text(exposed[worst], Unit.NS)}{per} of exposed "
        f"communication, on rank {worst}.{apart(results['instances'], basis)}"
    )


def _named(counts: pd.Series) -> list[tuple[str, int]]:
    return [
        (collectives_words(key[1]) if count > 1 else collective_words(key[1]), int(count))
        for key, count in counts.items()
    ]
