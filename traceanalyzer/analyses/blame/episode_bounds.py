"""What an episode may gain at most, where no replay tells, and what it costs at least."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.wide import by_step_and_rank
from traceanalyzer.model.tables import rows_where


def cells_of(row: Mapping[str, Any], found: pd.DataFrame) -> pd.DataFrame:
    """The cells of an episode."""
    name = found["name"].isna() if pd.isna(row["name"]) else found["name"] == row["name"]
    is_own = (found["part"] == row["part"]) & name & found["rank"].isin(row["ranks"])
    return found[is_own & found["step"].isin(row["numbers"] or (-1,))]


def bounds(
    table: pd.DataFrame, found: pd.DataFrame, late: pd.DataFrame, complete: Sequence[int]
) -> pd.api.extensions.ExtensionArray:
    """For each episode by how much the longest own step is shorter without its excess.

    The mean over complete steps; without any the sum over the capture's.
    """
    numbers, count = (list(complete), len(complete)) if complete else (sorted(late["step"].unique()), 1)
    wide = by_step_and_rank(late, "excess_ns")
    waits = late.groupby("step")["exposed_wait_ns"].min()
    bounds = [_bound(row, found, wide, waits, numbers, count) for row in table.to_dict("records")]
    return pd.array(bounds, dtype="Int64")


def _bound(
    row: Mapping[str, Any], found: pd.DataFrame, wide: pd.DataFrame, waits: pd.Series, numbers: list[int], count: int
) -> Any:
    own = cells_of(row, found)
    own = rows_where(own, own["step"].isin(numbers))
    if own.empty:
        return pd.NA
    less = wide.copy()
    for cell in own.itertuples():
        less.loc[cell.step, cell.rank] -= cell.excess_ns
    held = own["step"].unique()
    shorter = (wide.max(axis=1) - less.max(axis=1).clip(lower=0)).loc[held]
    # Where every rank waits, ranks are late at different times of the step: one hides no other.
    gained = np.minimum(shorter + waits.reindex(held), own.groupby("step")["excess_ns"].max().reindex(held))
    return round(float(gained.clip(lower=0).sum()) / count)


def at_least_its_gain(table: pd.DataFrame, late: pd.DataFrame, complete: Sequence[int]) -> pd.DataFrame:
    """Excess and cost where mending gains more of each step of the episode, and the others wait as long.

    What launching takes a host more is less than what its GPU idles for, where the host waits for the GPU in between.
    """
    if not complete:
        return table
    waited = late[["exposed_wait_ns", "exposed_unmatched_ns"]].sum(axis=1).astype("float64")
    raised = []
    for row in table.to_dict("records"):
        held = [step for step in row["numbers"] if step in complete]
        others = late["step"].isin(held) & ~late["rank"].isin(row["ranks"])
        gain = 0.0 if pd.isna(row["gain_ns"]) or row["gain_is_bound"] or not held else float(row["gain_ns"])
        most = float(waited[others].groupby(late["rank"]).mean().max()) if others.any() else 0.0
        raised.append(round(min(gain * len(complete) / max(len(held), 1), most)))
    return table.assign(**{name: np.maximum(table[name], raised) for name in ("excess_ns", "cost_ns")})
