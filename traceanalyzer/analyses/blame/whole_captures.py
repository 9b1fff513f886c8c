"""Ranks that share no step, as where one of them marks none, held against each other by all that was recorded."""

from functools import reduce

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of, table_of

_AS_LONG = 0.9
"""Of the longest rank's time: whoever recorded less of the job is compared with nobody."""

_MOST = ("end_ns", "longest_call_ns")
_FIRST = ("begin_ns", "met_in", "peers")


def as_whole_captures(needs: pd.DataFrame, work: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Steps as `step_needs` has them and what ran in them, each rank's together as one without a number.

    As they are where ranks share a step, or have none, and where one rank's steps last less than 0.9 times as long as
    another's.
    """
    own = Groups.of(needs, ["rank"])
    step = needs["step"].to_numpy(dtype=np.int64, na_value=NONE)
    steps = [{*step[own.of_row == place].tolist()} for place in range(len(own))]
    if reduce(set.intersection, steps):
        return needs, work
    whole = _together(needs.sort_values(["rank", "begin_ns"], ignore_index=True))
    length_ns = whole["end_ns"] - whole["begin_ns"]
    if length_ns.min() < _AS_LONG * length_ns.max():
        return needs, work
    of_name = work.groupby(["rank", "part", "what", "name"], dropna=False, observed=True, sort=False)
    return whole, of_name[["total_ns", "calls", "work"]].sum().reset_index().assign(step=NONE)[[*work.columns]]


def _together(needs: pd.DataFrame) -> pd.DataFrame:
    own, columns = Groups.of(needs, ["rank"]), columns_of(needs)
    made = {}
    for name, values in columns.items():
        if name == "rank":
            made[name] = own.keys[name]
        elif name in _FIRST:
            made[name] = values.take(own.first)
        elif name in _MOST:
            made[name] = needs.groupby("rank")[name].max().array
        elif name.startswith("is_"):
            made[name] = np.zeros(len(own), dtype=bool)
        else:
            made[name] = needs.groupby("rank")[name].sum(min_count=1).array
    return table_of({**made, "step": pd.array([pd.NA] * len(own), dtype="Int64")})
