"""Hosts that are slower at everything: by how much, and what is then no name for why they are late."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.episode_rows import OF_PACE
from traceanalyzer.analyses.host.host_activity import NOTHING
from traceanalyzer.analyses.host.host_names import is_framework_range
from traceanalyzer.analyses.operators.same_calls import same_calls
from traceanalyzer.meaning.vocabulary import HOST

_COVERED = 0.5
"""Of a host's time in operators: calls that all make tell of its pace where they take this part."""


def without_names_of_pace(cells: pd.DataFrame, late: pd.DataFrame, operators: pd.DataFrame) -> pd.DataFrame:
    """The cells; of hosts that are late by their pace without names that hold whatever a host does.

    Those are PyTorch's own ranges, and time in which nothing is recorded: a GPU idles in them for a host that is slow
    throughout, while the GPUs that wait for it do not idle there, whose hosts take time for the same.
    """
    names = [isinstance(name, str) and (name == NOTHING or is_framework_range(name)) for name in cells["name"]]
    is_general = np.array(names, dtype=bool) & (cells["part"] == HOST.column).to_numpy()
    if not is_general.any() or operators.empty:
        return cells
    needed = late.set_index(["rank", "step"])["needed_host_ns"].astype("float64")
    slower = pd.Series(0.0, index=cells.index)
    for rank, rows in cells[is_general].groupby("rank"):
        pace = pace_of(operators, [int(rank)], late["rank"].unique())
        if pace is not None and pace > 1:
            own = needed.reindex(pd.MultiIndex.from_frame(rows[["rank", "step"]])).to_numpy()
            slower[rows.index] = own * (1 - 1 / pace)
    is_of_pace = is_general & (slower >= OF_PACE * cells["excess_ns"]).to_numpy()
    return cells.assign(**{name: cells[name].mask(is_of_pace, None) for name in ("what", "name")})


def pace_of(operators: pd.DataFrame, ranks: Sequence[int], among: np.ndarray) -> float | None:
    """How many times as long as the others' their hosts take for calls that all make: the least of these ranks.

    `None` where such calls take less than half of the time of one of them in operators, or nobody is left beside them.
    """
    paces = []
    for rank in ranks:
        same = same_calls(operators, rank, [rank, *(other for other in among if other not in ranks)])
        pace = None if same is None or same.covered < _COVERED else same.pace
        if pace is None:
            return None
        paces.append(pace)
    return min(paces, default=None)
