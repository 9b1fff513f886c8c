"""Which streams, and which classes of work, really run at the same time."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.names import StreamPairsColumn
from traceanalyzer.analyses.streams import traffic
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, table_of, under_each_other


class StreamPairs(Result[StreamPairsColumn]):
    """One row for each rank and pair of streams (`of` stream), and pair of classes of work (`of` class)."""

    title: ClassVar[str] = "What runs at the same time"
    keys: ClassVar[tuple[str, ...]] = ("rank", "of", "first", "second")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "of": Column.text("`stream` or `class`."),
        "first": Column.text(
            "Stream number, or class: compute, communication, upload, download, exchange, device memory. No classes "
            "of a rank that runs CUDA graphs which were recorded whole: what runs inside them is not known."
        ),
        "second": Column.text("The other one."),
        "both_ns": Column.time("Time in the window in which both run."),
        "first_ns": Column.time("Time in which the first runs."),
        "second_ns": Column.time("Time in which the second runs."),
        "both_pct": Column.share(
            "100 · both / the shorter of the two times: 100 when one always hides under the other.", better=Better.MORE
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        shorter = table["first_ns"].where(table["first_ns"] < table["second_ns"], table["second_ns"])
        return self._with(table, {"both_pct": percent(table["both_ns"], shorter)})


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Pairs of what runs in the rank's window; no rows for a single stream or class."""
    ops = trace.gpu_ops
    if ops.empty:
        return pd.DataFrame()
    starts, ends, stream = (array_of(ops, name) for name in ("start_ns", "end_ns", "stream"))
    masks = {str(number): stream == number for number in np.unique(stream)}
    streams = {name: Intervals.of(starts[mask], ends[mask]) for name, mask in masks.items()}
    classes = traffic.unions(starts, ends, traffic.op_classes(trace))
    tables = []
    if classes.pop(traffic.UNKNOWN).inside(trace.window):
        classes = {}
    for of, unions in (("stream", streams), ("class", classes)):
        held = {name: own.inside(trace.window) for name, own in unions.items() if len(own)}
        both = traffic.pair_times(list(held.values()), trace.window.start_ns, trace.window.end_ns)
        tables.append(_pairs(of, both, list(held)))
    return under_each_other(tables)


def across(parts: Mapping[int, pd.DataFrame]) -> StreamPairs:
    """The ranks' rows under each other."""
    return StreamPairs(stack(parts, tuple(StreamPairs.columns)))


def _pairs(of: str, both: np.ndarray, names: list[str]) -> pd.DataFrame:
    first, second = np.triu_indices(len(names), k=1)
    label = np.array(names, dtype=object)
    return table_of(
        {
            "first": label[first],
            "second": label[second],
            "both_ns": both[first, second],
            "first_ns": both[first, first],
            "second_ns": both[second, second],
            "of": of,
        }
    )
