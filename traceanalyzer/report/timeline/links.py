"""What ties a timeline's operations to others: their instance, who was awaited, the launching thread, their slack.

For each rank come, as columns: of its communication operations the instance (0: none, else one more) and the rank
that was awaited (0: none, else one more); of all its operations the thread of the launch, as its place in `threads`
(0: none, else one more), and the slack in µs (0: not known, else one more).
"""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.blocks import row_blocks
from traceanalyzer.model.schema import NONE
from traceanalyzer.report.timeline.columns import or_zero, rows_of_ranks, varints


def links(table: pd.DataFrame, kept: list[int], results: Results) -> tuple[dict[str, Any], bytes]:
    """Of the timeline's rows of the ranks `kept`: what the columns mean, and the columns."""
    waits = results["call_waits"].table if "call_waits" in results else pd.DataFrame()
    by_call = waits.set_index(["rank", "call"])[["instance", "waits_for"]] if len(waits) else None
    is_comm = (table["kind"] == "comm").to_numpy()
    of_calls = _of_calls(table.loc[is_comm, ["rank", "call"]], by_call)
    calls, rows = rows_of_ranks(table.loc[is_comm, "rank"]), rows_of_ranks(table["rank"])
    thread_of_row, operations = table["launch_thread"], table["operation"].to_numpy(dtype=np.int64)
    slacks = results["replay"].slacks(kept) if "replay" in results else {}
    threads: dict[int, list[int]] = {}
    columns: list[np.ndarray] = []
    for rank in kept:
        own = rows[rank]
        columns += [column[calls.get(rank, _NONE)] for column in of_calls]
        thread, known = pd.factorize(thread_of_row.array[own])
        threads[rank] = [int(number) for number in known]
        columns += [thread + 1, _slack_us(slacks[rank], operations[own]) if rank in slacks else _none(len(own))]
    return {"threads": list(threads.values()), "has_slack": bool(slacks)}, b"".join(map(varints, columns))


_NONE = np.empty(0, dtype=np.int64)


def _of_calls(calls: pd.DataFrame, waits: pd.DataFrame | None) -> list[np.ndarray]:
    if waits is None:
        return [np.zeros(len(calls), dtype=np.int64)] * 2
    rows = waits.reindex(pd.MultiIndex.from_arrays([calls["rank"], calls["call"].astype("int64")]))
    return [or_zero(rows["instance"]), or_zero(rows["waits_for"])]


def _none(count: int) -> np.ndarray:
    return np.zeros(count, dtype=np.int64)


def _slack_us(slack_ns: pd.Series, operations: np.ndarray) -> np.ndarray:
    """Of each of these operations, positions in `gpu_ops`; of all at once it takes fifty times what comes of it."""
    row = slack_ns.index.to_numpy()
    place = np.full(max(row.max(initial=NONE), operations.max(initial=NONE)) + 1, NONE)
    place[row] = np.arange(len(row))
    found = []
    for rows in row_blocks(len(operations)):
        known = slack_ns.array.take(place[operations[rows]], allow_fill=True)
        found.append(or_zero(_rounded(pd.Series(known))))
    return np.concatenate(found)


def _rounded(slack_ns: pd.Series) -> pd.Series:
    """Whole µs with two significant digits: more would double what the column takes, and nobody reads it."""
    us = (slack_ns // 1000).to_numpy(dtype=np.float64, na_value=np.nan)
    size = 10 ** np.maximum(np.floor(np.log10(np.maximum(us, 1))) - 1, 0)
    return pd.Series(us // size * size).astype("Int64")
