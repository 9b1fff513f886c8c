"""Arguments of communication kernels that were launched before the capture, taken from a later step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.model.plain import known_of, whole_of
from traceanalyzer.model.tables import array_of, column_of, columns_as_they_are, with_columns

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
    queued = _queued(calls)
    step = whole_of(calls, "step")
    steps = [*dict.fromkeys(step[known_of(calls, "step")].tolist())]
    # The last step may be cut, so its end says nothing; a sole one is all there is.
    templates = steps[:-1] or steps
    streams = array_of(calls, "stream")[queued]
    found = [_best_match(calls, queued[streams == stream], step, templates) for stream in np.unique(streams)]
    if not any(len(rows) for rows, _ in found):
        return calls
    rows, sources = (np.concatenate(each) for each in zip(*found, strict=True))
    columns = columns_as_they_are(calls)
    filled = {name: _filled(columns[name], rows, columns[name][sources]) for name in ARGUMENTS}
    return with_columns(calls, **filled, arguments=_filled(columns["arguments"], rows, INFERRED))


def _queued(calls: pd.DataFrame) -> np.ndarray:
    """Positions of the calls without arguments before the first step's first."""
    in_step = np.flatnonzero(known_of(calls, "step"))
    before = column_of(calls, "arguments")[: in_step[0] if len(in_step) else 0]
    return np.flatnonzero(before.isna())


def _best_match(
    calls: pd.DataFrame, rows: np.ndarray, step_of: np.ndarray, steps: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that get arguments and the rows they get them from: the step that agrees on most."""
    streams = array_of(calls, "stream")
    told = np.flatnonzero((streams == streams[rows[0]]) & known_of(calls, "arguments"))
    kernels = [_codes(column_of(calls, name)) for name in _KERNEL]
    matches = [_agreeing(kernels, rows, told[step_of[told] == step]) for step in steps]
    return max(matches, key=lambda match: len(match[0]), default=(rows[:0], rows[:0]))


def _agreeing(kernels: Sequence[np.ndarray], rows: np.ndarray, template: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counted from both ends, the positions up to the first whose kernels differ; several steps may be queued."""
    if not len(template):
        return rows[:0], rows[:0]
    sources = template[::-1][np.arange(len(rows)) % len(template)]
    targets = rows[::-1]
    is_same = np.ones(len(rows), dtype=bool)
    for codes in kernels:
        is_same &= codes[targets] == codes[sources]
    run = int(np.argmin(is_same)) if not is_same.all() else len(rows)
    return targets[:run], sources[:run]


def _codes(names: Any) -> np.ndarray:
    """A number for each distinct name."""
    codes: np.ndarray = names.codes if isinstance(names, pd.Categorical) else pd.factorize(names)[0]
    return codes


def _filled(column: Any, rows: np.ndarray, values: Any) -> Any:
    filled = column.copy()
    filled[rows] = values
    return filled
