"""The columns of a timeline's operations, of all ranks at once, cut by rank."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.communication.common_clock import Clock
from traceanalyzer.model.tables import array_of, column_of
from traceanalyzer.report.timeline.columns import narrow, or_zero, steps_of, varints


@dataclass(frozen=True, slots=True)
class Operations:
    """Columns of all ranks' operations, of the communication among them, and of the copies; ranks in order."""

    ranks: np.ndarray
    starts_ns: np.ndarray
    streams: np.ndarray
    every: list[np.ndarray]
    comm: list[np.ndarray]
    copies: list[np.ndarray]
    before_comm: np.ndarray
    before_copies: np.ndarray

    @classmethod
    def of(cls, table: pd.DataFrame, names: np.ndarray, calls: pd.DataFrame | None) -> "Operations":
        """Of the timeline's rows, ordered by rank."""
        starts, ends = (array_of(table, name) for name in ("start_ns", "end_ns"))
        delay = (table["start_ns"] - table["launch_start_ns"]).astype("Int64")
        is_comm, is_copy = (is_any(table["kind"], kind) for kind in ("comm", "copy"))
        return cls(
            ranks=array_of(table, "rank"),
            starts_ns=starts,
            streams=array_of(table, "stream"),
            every=[
                narrow(ends - starts),
                narrow(names),
                narrow(or_zero(table["step"])),
                narrow(or_zero(delay.where(delay >= 0))),
                column_of(table, "launch").codes.astype(np.int32) + 1,
                narrow(array_of(table, "origin")),
                narrow(array_of(table, "around")),
            ],
            comm=_call_columns(table[is_comm], calls),
            copies=[or_zero(table["size_bytes"][is_copy])],
            before_comm=np.append(0, np.cumsum(is_comm)),
            before_copies=np.append(0, np.cumsum(is_copy)),
        )

    def of_rank(self, rank: int, clock: Clock) -> tuple[dict[str, Any], list[bytes]]:
        """What the page has to know of a rank's columns, and the columns."""
        first, end = np.searchsorted(self.ranks, [rank, rank + 1])
        starts = self.starts_ns[first:end] - clock.shift_ns(rank)
        streams, stream_ids = np.unique(self.streams[first:end], return_inverse=True)
        lengths, names, *rest = (column[first:end] for column in self.every)
        comm = slice(self.before_comm[first], self.before_comm[end])
        copies = slice(self.before_copies[first], self.before_copies[end])
        columns = [
            *(steps_of(starts), lengths, names, stream_ids, *rest),
            *(column[comm] for column in self.comm),
            *(column[copies] for column in self.copies),
        ]
        entry = {"rank": rank, "count": len(starts), "first": int(starts[0] - clock.zero_ns),
                 "streams": streams.tolist()}  # fmt: skip
        return entry, [varints(column) for column in columns]


def _call_columns(comm: pd.DataFrame, calls: pd.DataFrame | None) -> list[np.ndarray]:
    if calls is None:
        return [np.zeros(len(comm), dtype=np.int64)] * 4
    rows = calls.reindex(pd.MultiIndex.from_arrays([comm["rank"], comm["call"].astype("int64")]))
    wait = rows["wait_ns"].clip(upper=pd.Series((comm["end_ns"] - comm["start_ns"]).to_numpy(), rows.index))
    return [or_zero(rows["label"]), or_zero(rows["size_bytes"]), or_zero(wait), or_zero(rows["why"])]
