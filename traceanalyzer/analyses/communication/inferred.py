"""Arguments of communication kernels that were launched before the capture, taken from a later step."""

import numpy as np
import pandas as pd

from traceanalyzer.model.tables import array_of, column_of

ARGUMENTS = (
    "collective", "group", "group_description", "group_ranks", "group_size", "dtype", "in_elements",
    "out_elements", "in_split", "out_split", "root", "size_bytes", "is_uneven", "peers", "host_operations",
)  # fmt: skip
"""What positions in the program have in common; a sequence number they do not."""

INFERRED = "inferred"

_KERNEL = ["name", "grid"]


def with_inferred(calls: pd.DataFrame) -> pd.DataFrame:
    """One rank's calls, where those launched before the capture have arguments if a later step shows them.

    Kernels queued when the capture began are the end of the step before it. Counted from its end, each is
    the call at the same position from a later step's end on the same stream, as long as name and grid agree;
    the first that disagrees ends the run. `arguments` says `inferred`.
    """
    steps = [int(step) for step in calls["step"].dropna().unique()]
    # The last step may be cut, so its end says nothing; a sole one is all there is.
    templates = steps[:-1] or steps
    queued = _queued(calls)
    streams = array_of(calls, "stream")[queued]
    found = [_best_match(calls, queued[streams == stream], templates) for stream in np.unique(streams)]
    rows = np.concatenate([queued[:0], *(rows for rows, _ in found)])
    sources = np.concatenate([queued[:0], *(sources for _, sources in found)])
    if not len(rows):
        return calls
    filled = {name: _filled(calls[name], rows, sources) for name in ARGUMENTS}
    says = calls["arguments"].astype("object").mask(np.isin(np.arange(len(calls)), rows), INFERRED)
    return calls.assign(**filled, arguments=says)


def _queued(calls: pd.DataFrame) -> np.ndarray:
    """Positions of the calls without arguments before the first step's first."""
    in_step = np.flatnonzero(~column_of(calls, "step").isna())
    before = np.arange(len(calls)) < (in_step[0] if len(in_step) else 0)
    return np.flatnonzero(before & column_of(calls, "arguments").isna())


def _best_match(calls: pd.DataFrame, rows: np.ndarray, steps: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows that get arguments and the rows they get them from: the step that agrees on most."""
    stream = calls["stream"].iloc[rows[0]]
    on_stream = (array_of(calls, "stream") == stream) & ~column_of(calls, "arguments").isna()
    matches = [
        _agreeing(calls, rows, np.flatnonzero(on_stream & (calls["step"] == step).fillna(value=False).to_numpy(bool)))
        for step in steps
    ]
    return max(matches, key=lambda match: len(match[0]), default=(rows[:0], rows[:0]))


def _agreeing(calls: pd.DataFrame, rows: np.ndarray, template: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counted from both ends, the positions up to the first whose kernels differ; several steps may be queued."""
    if not len(template):
        return rows[:0], rows[:0]
    sources = template[::-1][np.arange(len(rows)) % len(template)]
    targets = rows[::-1]
    is_same = np.ones(len(rows), dtype=bool)
    for name in _KERNEL:
        text = calls[name].astype("object").fillna("").to_numpy()
        is_same &= text[targets] == text[sources]
    run = int(np.argmin(is_same)) if not is_same.all() else len(rows)
    return targets[:run], sources[:run]


def _filled(column: pd.Series, rows: np.ndarray, sources: np.ndarray) -> pd.Series:
    filled = column.copy()
    filled.iloc[rows] = column.iloc[sources].array
    return filled
