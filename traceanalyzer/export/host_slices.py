"""The host's threads: ranges, operators, Python frames and API calls, inside each other as they were recorded."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from traceanalyzer.analyses.host.thread_roles import thread_roles
from traceanalyzer.export.flows import of_operation
from traceanalyzer.export.rows import COLOURS, sliced
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE

_TOLD = {"operator": ("shapes", "dtypes", "sequence"), "runtime": ("correlation",)}


def threads(trace: RankTrace, ops: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Name and slices of each thread, the main one first; of chosen steps only what ran while they did.

    Args:
        trace: the rank's events.
        ops: its rows of `Timeline`: the operations to which arrows lead.
    """
    events = pd.concat([
        _slices(trace, trace.ranges, "range"),
        _slices(trace, trace.host_ops, "operator"),
        _slices(trace, trace.frames, "python"),
        _slices(trace, trace.api_calls.assign(flows_out=_launched(trace, ops)), "runtime"),
    ])  # fmt: skip
    roles = thread_roles(trace)
    found = {int(number): own for number, own in events.groupby("thread")}
    is_main = {number: roles.get(number) == "main" for number in found}
    for number in sorted(found, key=lambda thread: (not is_main[thread], -len(found[thread]))):
        role = roles.get(number)
        yield f"thread {number}" + (f" · {role}" if role else ""), found[number]


def _slices(trace: RankTrace, table: pd.DataFrame, category: str) -> pd.DataFrame:
    held = table[_while_looked_at(trace, table)]
    told = [name for name in _TOLD.get(category, ()) if name in held]
    slices = sliced(
        held.assign(name=held["name"].astype("str")),
        category=category, colour=COLOURS["mark"], args=_contents(held, told), flows_out=held.get("flows_out"),
    )  # fmt: skip
    return slices.assign(thread=held["thread"])


def _contents(table: pd.DataFrame, told: list[str]) -> list[dict[str, object] | None]:
    if not told:
        return [None] * len(table)
    columns = {name: table[name].to_numpy(dtype=object, na_value=None) for name in told}
    return [
        {name: values[row] for name, values in columns.items() if values[row] is not None} for row in range(len(table))
    ]


def _launched(trace: RankTrace, ops: pd.DataFrame) -> pd.Series:
    """For each API call the arrows to the operations that it launched."""
    found: dict[int, list[int]] = {}
    launch = trace.gpu_ops["launch"].to_numpy()
    for number in ops["operation"].tolist() if len(ops) else ():
        if launch[number] != NONE:
            found.setdefault(int(launch[number]), []).append(of_operation(trace.rank, number))
    flows = np.full(len(trace.api_calls), None, dtype=object)
    for row, numbers in found.items():
        flows[row] = tuple(numbers)
    return pd.Series(flows, index=trace.api_calls.index)


def _while_looked_at(trace: RankTrace, table: pd.DataFrame) -> np.ndarray:
    """Mask of the rows that run while a chosen step does, on the host or on the GPU, or that launched its work."""
    if trace.window.steps is None:
        return np.ones(len(table), dtype=bool)
    chosen = trace.steps[trace.steps["step"].isin(trace.window.steps)]
    starts = chosen["host_start_ns"].to_numpy()
    ends = np.maximum(chosen["host_end_ns"].to_numpy(), chosen["end_ns"].fillna(0).to_numpy(dtype="int64"))
    kept = np.zeros(len(table), dtype=bool)
    for start, end in zip(starts, ends, strict=True):
        kept |= ((table["start_ns"] < end) & (table["end_ns"] > start)).to_numpy()
    if "flows_out" in table:
        kept |= table["flows_out"].notna().to_numpy()
    return kept
