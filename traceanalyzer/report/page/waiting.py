"""What a page shows of who makes the others wait, and which waits cannot be measured."""

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.uneven.balance import apart
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.names import collective_words, collectives_words
from traceanalyzer.meaning.quantities import text
from traceanalyzer.meaning.wholes import rate
from traceanalyzer.report.words.parts import Split, headline_steps, unsplit_calls

COLUMNS = (
    "rank", "cost_max_ns", "cost_max_rank", "cost_pct", "cost_mean_ns", "waiting_ranks", "collective",
    "steps_affected", "cause", "cause_ns", "operation",
)  # fmt: skip
"""Of a straggler's row those that a page shows."""


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
    return (
        f"Not measured: waits in {'; '.join(whys)}. That is up to {text(exposed[worst], Unit.NS)}{rate(split.steps)} "
        f"of exposed communication, on rank {worst}.{apart(results['instances'], basis)}"
    )


def _named(counts: pd.Series) -> list[tuple[str, int]]:
    return [
        (collectives_words(key[1]) if count > 1 else collective_words(key[1]), int(count))
        for key, count in counts.items()
    ]
