"""Whether a rank began the first recorded step late, for what was not recorded: others wait for it in that step."""

from collections.abc import Mapping

import pandas as pd

from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.wide import by_step_and_rank
from traceanalyzer.findings.basis import plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import only, rows_where

LATE_START = 0.5
"""Of a later step: what others wait in the first one, more than in these."""

_OF_MEAN = 0.1
"""Of a later step, by how much the mean of all is longer for it: of many steps one is no news."""

_MOSTLY = 0.5
"""Of that wait, by which a rank begins the step later than who waits: what fills a pipeline is no late start."""

_OWN = 0.2
"""Of that wait: a rank that needs so much longer in the first step than later is late in it, and not before."""


def late_start(
    step_needs: StepNeeds, steps: Steps, clocks: Clocks, *, late_start_times: float = LATE_START
) -> list[Finding]:
    """In the first recorded step ranks wait for others whose own is no longer than later ones: they began it late.

    By half a step and more, a tenth of the mean; most of it they began later, by the ranks' common clock. What they did
    before it was not recorded: the profiler's start, saving, evaluating.
    """
    complete = complete_steps(steps.table)
    if not len(step_needs) or not len(complete):
        return []
    table = rows_where(step_needs.table, step_needs.table["step"].isin(complete["step"].unique()))
    table = table.assign(
        length_ns=table["end_ns"] - table["begin_ns"], wait_ns=table["exposed_wait_ns"] + table["exposed_unmatched_ns"]
    )
    waits, lengths = (by_step_and_rank(table, name).dropna(axis=1) for name in ("wait_ns", "length_ns"))
    if len(lengths) < 2 or lengths.shape[1] < 2 or lengths.index[0] != step_needs.table["step"].min():
        return []
    first, own_ns = int(lengths.index[0]), lengths - waits
    more_ns, longer_ns = (wide.iloc[0] - wide.iloc[1:].median() for wide in (waits, own_ns))
    waiting, most_ns, later_ns = int(more_ns.idxmax()), float(more_ns.max()), float(lengths.iloc[1:].median().median())
    begins = _begins(rows_where(table, table["step"] == first), clocks.offsets_ns())
    is_late = (more_ns <= _OWN * most_ns) & (begins[more_ns.index] - begins[waiting] >= _MOSTLY * most_ns)
    late = [int(rank) for rank in more_ns.index[is_late]]
    if not late or longer_ns[late].max() > _OWN * most_ns:
        return []
    if most_ns < max(late_start_times, _OF_MEAN * len(lengths)) * later_ns:
        return []
    did = "it" if len(late) == 1 else "they"
    shown = ["step", "rank", "begin_ns", "length_ns", "wait_ns"]
    return [
        Finding(
            severity="medium",
            title=f"In step {first}, the first that was recorded, rank {waiting} waits {time_text(most_ns)} longer "
            f"than later for {numbered('rank', late)}, which began it late: what {did} did before was not recorded.",
            evidence=plain(only(rows_where(table, table["step"] == first), shown)),
            recommendation=f"Leave it out: --steps {first + 1}:. Saving, evaluating or the profiler's own start may "
            "lie before it: record from an earlier step on to see it.",
            caveat="Means over steps hold that wait.",
            is_about_capture=True,
            steps=(first,),
            named=(*late, waiting),
            table="step_needs",
        )
    ]


def _begins(table: pd.DataFrame, offsets_ns: Mapping[int, int]) -> pd.Series:
    """When each rank begins the step, on one clock as far as it is known."""
    begins = table.set_index("rank")["begin_ns"].astype("float64")
    return begins - [offsets_ns.get(int(rank), 0) for rank in begins.index]
