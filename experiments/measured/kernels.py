"""GPU time by kind of kernel and by operator, runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from measured.cells import MS, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measured.runs import Run


def by_category(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """GPU time of a recorded step by category of kernels, a column for each run; means over ranks."""
    return _side_by_side(runs, "categories", ["category"], "gpu_ns", least_ms=0)


def by_operator(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """GPU time of a recorded step that each operator launched itself, where runs differ by half a millisecond."""
    return _side_by_side(runs, "operators", ["operator", "autograd"], "gpu_own_ns", least_ms=0.5)


def _side_by_side(
    runs: list[Run], table: str, keys: list[str], column: str, least_ms: float
) -> Iterator[dict[str, Any]]:
    """A capture holds whole steps, as many as were recorded; rows whose largest difference is smaller are left out."""
    found = {}
    for run in runs:
        if run.is_analysed:
            own = run.table(table).fillna(dict.fromkeys(keys, ""))
            summed = own.groupby(keys)[column].sum() / own["rank"].nunique()
            found[run.name] = summed / run.facts["profile"]["active"] / MS
    if not found:
        return
    frame = pd.DataFrame(found).fillna(0)
    spread = frame.max(axis=1) - frame.min(axis=1)
    frame = frame[spread >= least_ms].sort_values(frame.columns[0], ascending=False)
    for row in frame.reset_index().to_dict("records"):
        yield {name: value if isinstance(value, str) else rounded(value, 2) for name, value in row.items()}
