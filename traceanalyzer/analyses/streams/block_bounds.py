"""A rank's repeated blocks in one line: medians of their parts, and what bounds most of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, typed
from traceanalyzer.analyses.names import BlockBoundsColumn
from traceanalyzer.analyses.streams.block_chain import LEAST_WAIT
from traceanalyzer.analyses.streams.blocks import Blocks
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model.tables import only, rows_where, table_of, without_rows

_MEDIANS = ("pitch_ns", "compute_ns", "communication_ns", "upload_ns", "exchange_ns", "download_ns", "exposed_ns",
            "idle_ns", "upload_hidden_ns", "download_hidden_ns", "upload_queued_ns", "waited_ns",
            "upload_bytes", "exchange_bytes", "download_bytes")  # fmt: skip


class BlockBounds(Result[BlockBoundsColumn]):
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
        "broken_blocks": Column.count(
            "Number of blocks whose compute waited for 5 % of the pitch or more after the compute before it: there the "
            "chain of upload, compute and offload breaks.",
            is_compared=False,
        ),
        "broken_by": Column.text("What most of those waited for: upload, download or other."),
        **{
            name: replace(Blocks.columns[name], definition=f"Median of the blocks' {name}.", adds=Adds.DERIVED)
            for name in _MEDIANS
        },
    }


def across(_parts: Mapping[int, pd.DataFrame], blocks: Blocks) -> BlockBounds:
    """Summarise each rank's blocks."""
    if not len(blocks):
        table = without_rows(BlockBounds.columns)
        return BlockBounds(typed(table, dict.fromkeys(_MEDIANS, "Int64")))
    held = typed(blocks.table, dict.fromkeys(_MEDIANS, "Float64"))
    by_rank = held.groupby("rank")
    counts = held.groupby("rank")["bound"].value_counts().reset_index(name="count")
    most = counts.drop_duplicates("rank").set_index("rank")
    ranks = by_rank.size().index
    table = table_of(
        {
            "rank": ranks,
            "source": by_rank["source"].first().to_numpy(),
            "blocks": by_rank.size().to_numpy(),
            "bound": [None if pd.isna(bound) else bound for bound in most["bound"].astype("object").reindex(ranks)],
            "bound_blocks": most["count"].reindex(ranks, fill_value=0).to_numpy(),
            "bound_known_blocks": by_rank["bound"].count().to_numpy(),
            **_breaks(held, ranks),
            **{name: column.to_numpy() for name, column in by_rank[list(_MEDIANS)].median().round().items()},
        }
    )
    return BlockBounds(only(typed(table, dict.fromkeys(_MEDIANS, "Int64")), list(BlockBounds.columns)))


def _breaks(held: pd.DataFrame, ranks: pd.Index) -> dict[str, object]:
    is_broken = (held["waited_ns"] >= LEAST_WAIT * held["pitch_ns"]).fillna(value=False)
    broken = rows_where(held, is_broken)
    counts = broken.groupby("rank")["waited_for"].value_counts().reset_index(name="count")
    most = counts.drop_duplicates("rank").set_index("rank")["waited_for"].astype("object").reindex(ranks)
    return {
        "broken_blocks": is_broken.groupby(held["rank"]).sum().reindex(ranks).to_numpy(),
        "broken_by": [None if pd.isna(what) else what for what in most],
    }
