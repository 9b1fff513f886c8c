"""A rank's repeated blocks in one line: medians of their parts, and what bounds most of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, typed
from traceanalyzer.analyses.streams.blocks import Blocks
from traceanalyzer.columns import Adds, Column

_MEDIANS = ("pitch_ns", "compute_ns", "communication_ns", "upload_ns", "exchange_ns", "download_ns", "exposed_ns",
            "idle_ns", "upload_bytes", "exchange_bytes", "download_bytes")  # fmt: skip


class BlockBounds(Result):
    """One row for each rank that has repeated blocks."""

    title: ClassVar[str] = "What bounds the repeated blocks"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "source": Column.text("How blocks were found: `range` or `kernel sequence`."),
        "blocks": Column.count("Number of blocks.", is_compared=False),
        "bound": Column.text(
            "What bounds most of them: compute, communication, upload, exchange, download; `serial`: the parts "
            "run one after another; `waiting`: nothing of the block fills its time."
        ),
        "bound_blocks": Column.count("Number of blocks of which that is true.", is_compared=False, is_secondary=True),
        "bound_known_blocks": Column.count(
            "Number of blocks with a known pitch.", is_compared=False, is_secondary=True
        ),
        **{
            name: replace(Blocks.columns[name], definition=f"Median of the blocks' {name}.", adds=Adds.DERIVED)
            for name in _MEDIANS
        },
    }


def across(_parts: Mapping[int, pd.DataFrame], blocks: Blocks) -> BlockBounds:
    """Summarise each rank's blocks."""
    rows = [_row(rank, own) for rank, own in blocks.table.groupby("rank")] if len(blocks) else []
    table = pd.DataFrame(rows, columns=list(BlockBounds.columns))
    return BlockBounds(typed(table, dict.fromkeys(_MEDIANS, "Int64")))


def _row(rank: int, blocks: pd.DataFrame) -> dict[str, object]:
    counts = blocks["bound"].dropna().value_counts()
    medians = blocks[list(_MEDIANS)].astype("Float64").median().round()
    return {
        "rank": rank,
        "source": blocks["source"].iloc[0],
        "blocks": len(blocks),
        "bound": counts.index[0] if len(counts) else None,
        "bound_blocks": int(counts.iloc[0]) if len(counts) else 0,
        "bound_known_blocks": int(counts.sum()),
        **{name: pd.NA if pd.isna(value) else int(value) for name, value in medians.items()},
    }
