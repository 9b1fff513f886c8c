"""Single GPU operations: when they ran, who launched them, how long they stood in the queue."""

import numpy as np
import pandas as pd

from traceanalyzer.agents.answer import Answer, of_rows
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model import RankTrace, TraceSet
from traceanalyzer.model.schema import NONE
from traceanalyzer.report.words import care

COLUMNS = {
    "id": "Rank and place among its GPU operations by start: the same in every run over the same files.",
    "name": "Kernel or copy.",
    "kind": "compute, comm or copy.",
    "operator": "Operator that launched it.",
    "step": "Number of the step in which the host launched it.",
    "stream": "CUDA stream.",
    "start_ns": "Start, ns after the rank's first GPU operation.",
    "duration_ns": "End minus start.",
    "queued_ns": "Start minus the end of the call that launched it; absent without one.",
    "gap_before_ns": "Time before it in which nothing ran on the GPU.",
}


def operations(
    traces: TraceSet, rank: int, text: str, *, step: int | None = None, top: int = 20, cursor: int = 0
) -> Answer:
    """Operations whose name or operator contains the text (or whose id it is), longest first.

    Raises:
        UsageError: the rank has no such step.
    """
    trace = next(one for one in traces.ranks if one.rank == rank)
    ops = trace.gpu_ops
    operator = _operators(trace)
    numbers = trace.steps["step"].to_numpy()
    if step is not None and step not in numbers:
        known = numbered("step", numbers.tolist()) if len(numbers) else "no steps"
        raise UsageError(f"rank {rank} has no step {step}; it has {known}")
    in_step = [int(numbers[row]) if row != NONE else None for row in trace.op_step]
    table = pd.DataFrame(
        {
            "id": [f"{rank}:{row}" for row in range(len(ops))],
            "name": ops["name"].astype(str),
            "kind": ops["kind"].astype(str),
            "operator": operator,
            "step": pd.array(in_step, dtype="Int64"),
            "stream": ops["stream"],
            "start_ns": ops["start_ns"] - (ops["start_ns"].min() if len(ops) else 0),
            "duration_ns": ops["end_ns"] - ops["start_ns"],
            "queued_ns": _queued(ops, trace.api_calls),
            "gap_before_ns": _gaps(ops),
        }
    )
    is_named = table["name"].str.contains(text, case=False, regex=False) | (table["id"] == text)
    is_named |= table["operator"].astype("string").str.contains(text, case=False, regex=False).fillna(value=False)
    found = table[is_named & ((table["step"] == step).fillna(value=False) if step is not None else True)]
    found = found.sort_values("duration_ns", ascending=False, kind="stable")
    said = [f"{len(found):,} operations, {time_text(found['duration_ns'].sum())} altogether."] if len(found) else []
    rows = found.astype(object).where(found.notna(), None).to_dict("records")
    where = f"rank {rank}" if step is None else f"step {step} of rank {rank}"
    none = f"no GPU operation of {where} is called {text!r}, nor its operator"
    notes = [*traces.notes, *(f"Skipped {sentence}" for sentence in care.skipped(traces.skipped))]
    return of_rows(rows, COLUMNS, cursor=cursor, top=top, said=said, none=none, notes=notes)


def _operators(trace: RankTrace) -> list[str | None]:
    """Name of the innermost operator around each operation's launch."""
    owner = OperatorTree.of(trace).owner
    names = trace.host_ops["name"].astype(str).to_numpy()
    return [names[row] if row >= 0 else None for row in owner]


def _queued(ops: pd.DataFrame, calls: pd.DataFrame) -> pd.Series:
    row = ops["launch"].to_numpy()
    ends = np.append(calls["end_ns"].to_numpy(), 0)
    queued = pd.Series(ops["start_ns"].to_numpy() - ends[row], dtype="Int64")
    return queued.mask(row == NONE)


def _gaps(ops: pd.DataFrame) -> np.ndarray:
    if ops.empty:
        return np.empty(0, dtype=np.int64)
    before = np.maximum.accumulate(ops["end_ns"].to_numpy())[:-1]
    gaps: np.ndarray = np.append(0, np.maximum(0, ops["start_ns"].to_numpy()[1:] - before))
    return gaps
