"""Which stretches of each rank's GPU time are looked at, for figures that are not of complete steps."""

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import under_each_other


def stretches(steps: Result, ranks: Result) -> pd.DataFrame:
    """Columns `rank`, `step`, `window_start_ns`, `window_ns`: one row for each stretch.

    Of a rank whose steps were chosen each of their windows, under the step's number; of another one its whole window,
    as step -1. Windows of steps that were chosen need not follow each other.
    """
    whole = ranks.table[ranks.table["window_start_ns"].notna()].assign(step=NONE)
    own = steps.table
    if len(own):
        # Only of a whole capture there is a row for what belongs to no step.
        is_chosen = ~own["rank"].isin(own.loc[own["step"].isna(), "rank"])
        own = own[is_chosen & own["start_ns"].notna()].rename(columns={"start_ns": "window_start_ns"})
        whole = whole[~whole["rank"].isin(own["rank"])]
    names = ["rank", "step", "window_start_ns", "window_ns"]
    tables = [table[names].astype("int64") for table in (whole, own) if len(table)]
    return under_each_other(tables) if tables else pd.DataFrame(columns=names, dtype="int64")
