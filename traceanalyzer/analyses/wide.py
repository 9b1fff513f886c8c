"""What each rank has in each step, as a table with a row for each step and a column for each rank."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.model.tables import columns_of, floats


def by_step_and_rank(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The column's values by `step` and `rank`, as floats; NaN where there is none, the mean where there are several.

    Steps and ranks without any value are left out. Pandas' `pivot_table` of a few rows takes twenty times as long.
    """
    columns = columns_of(table)
    values = floats(columns[name])
    known = np.flatnonzero(~(np.isnan(values) | pd.isna(columns["step"]) | pd.isna(columns["rank"])))
    keys = {key: columns[key].take(known) for key in ("step", "rank")}
    steps, ranks = Groups.of(keys, ["step"]), Groups.of(keys, ["rank"])
    place, cells = steps.of_row * len(ranks) + ranks.of_row, len(steps) * len(ranks)
    counts, sums = np.bincount(place, minlength=cells), np.bincount(place, values[known], cells)
    means = np.divide(sums, counts, out=np.full(cells, np.nan), where=counts > 0)
    index, across = (pd.Index(own.keys[key], name=key) for own, key in ((steps, "step"), (ranks, "rank")))
    return pd.DataFrame(means.reshape(len(steps), len(ranks)), index, across)
