"""Whether ranks give the same step the same number: the calls that they share tell."""

import pandas as pd

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
    first = known.sort_values("rank", kind="stable").drop_duplicates("instance").set_index("instance")
    base = known["instance"].map(first["rank"]), known["instance"].map(first["step"])
    calls = pd.DataFrame({"rank": known["rank"], "base": base[0], "by": (known["step"] - base[1]).astype("Int64")})
    calls = calls[calls["rank"] != calls["base"]]
    counts = calls.groupby(["rank", "base", "by"]).size().rename("count").reset_index()
    total = counts.groupby(["rank", "base"])["count"].transform("sum")
    held = rows_where(
        counts, (counts["by"] != 0) & (counts["count"] >= _NEARLY_ALL * total) & (counts["count"] >= _LEAST_CALLS)
    )
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
