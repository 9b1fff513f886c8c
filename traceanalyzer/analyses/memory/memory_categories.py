"""What the peak of each rank's memory is held for: gradients, activations, optimizer state, communication."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.memory.held import CATEGORIES, Held
from traceanalyzer.analyses.names import MemoryCategoriesColumn
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, table_of


class MemoryCategories(Result[MemoryCategoriesColumn]):
    """One row for each rank and category, where the trace has the allocator's events with their addresses.

    A block is `temporaries` when it is taken back in the phase that it was given in; else `activations` when it was
    given in the forward pass, `gradients` in the backward pass, `optimizer state` in the optimizer and kept to the
    capture's end; `communication` when it was given inside a collective's operator. All else is `unknown`: above all
    what was there before the capture, such as parameters.
    """

    title: ClassVar[str] = "Memory at the peak by category"
    keys: ClassVar[tuple[str, ...]] = ("rank", "category")
    is_of_a_moment: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "category": Column.text("What it is held for, as far as events and operators tell."),
        "blocks": Column.count("Blocks in use at the peak; of unknown those that were given in the capture."),
        "peak_bytes": Column.size(
            "Bytes at the rank's peak; over categories they add up to `peak_allocated_bytes`.", better=Better.LESS
        ),
        "share_pct": Column.share("100 · bytes / the rank's peak."),
        "most_bytes": Column.size("The most that the category held at any moment.", adds=Adds.EXTREME),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        whole = table.groupby("rank")["peak_bytes"].transform("sum")
        return self._with(table, {"share_pct": percent(table["peak_bytes"], whole)})


def per_rank(_trace: RankTrace, held: Held) -> pd.DataFrame:
    """The categories at the first event of the highest level; of the whole capture, as the peak."""
    if held.events.empty:
        return pd.DataFrame()
    top = int(array_of(held.events, "level_bytes").argmax())
    return table_of(
        {
            "category": np.array(CATEGORIES, dtype=object),
            "blocks": held.blocks[top],
            "peak_bytes": held.level_bytes[top],
            "most_bytes": held.level_bytes.max(axis=0),
        }
    )


def across(parts: Mapping[int, pd.DataFrame]) -> MemoryCategories:
    """The ranks' rows under each other."""
    return MemoryCategories(stack(parts, tuple(name for name in MemoryCategories.columns if name != "share_pct")))
