"""Whether ranks give the same step the same number: the calls that they share tell."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.integrity.integrity_checks import Defect
from traceanalyzer.meaning.severities import MEDIUM
from traceanalyzer.model.tables import rows_where

SHIFTED = "shifted_steps"
"""The check that finds that they do not."""

_NEARLY_ALL = 0.9
"""Of a rank's calls: so many lie as many steps away from the others'. Calls of two steps may meet by mistake."""

_LEAST_CALLS = 3


def shifted(call_waits: pd.DataFrame) -> list[Defect]:
    """Ranks whose numbers of steps differ by the same from those of the ranks that they share calls with.

    Args:
        call_waits: the Result's table.
    """
    if call_waits.empty:
        return []
    known = rows_where(call_waits, call_waits["instance"].notna() & call_waits["step"].notna())
    instances = Groups.of(known, ["instance"])
    rank, step = (known[name].to_numpy(dtype=np.int64) for name in ("rank", "step"))
    base = instances.at_largest(-rank)[instances.of_row]
    calls = {"rank": rank, "base": rank[base], "by": step - step[base]}
    others = np.flatnonzero(calls["rank"] != calls["base"])
    alike = Groups.of({name: numbers[others] for name, numbers in calls.items()}, [*calls])
    pairs = Groups.of(alike.keys, ["rank", "base"])
    total = pairs.sums(alike.counts())[pairs.of_row]
    is_held = (alike.keys["by"] != 0) & (alike.counts() >= np.maximum(_NEARLY_ALL * total, _LEAST_CALLS))
    held = rows_where(alike.table(), is_held)
    if held.empty:
        return []
    row = held.iloc[0]
    count = len(held["rank"].unique())
    more = f" So it is with {count - 1} more ranks." if count > 1 else ""
    text = (
        f"Rank {row['rank']}'s numbers of steps are {abs(row['by'])} {'higher' if row['by'] > 0 else 'lower'} than "
        f"rank {row['base']}'s for the same steps, as the calls that they share show: steps are compared by number, so "
        f"that who is late in a single one cannot be told.{more} Start the profiler in the same step on every rank."
    )
    return [Defect(SHIFTED, MEDIUM, count, None, text, ("steps",))]
