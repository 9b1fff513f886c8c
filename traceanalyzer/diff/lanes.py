"""One step of each rank as a picture: where compute, transfers, waits and copies run, from the step's start."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.time.breakdown import stretches
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.names import short_name
from traceanalyzer.model.schema import NONE

KINDS = ("compute", "comm", "wait", "copy", "unknown")
"""What is drawn; `comm` is what is left of communication without the waits that are known."""

RESOLUTION = 6000
"""Gaps shorter than the step divided by this are drawn closed."""

MOST_RANKS = 8


def of_results(results: Results, steps: tuple[int, ...]) -> pd.DataFrame | None:
    """Columns `rank`, `kind`, `start_ns`, `end_ns` (from the step's start), `step`, `window_ns`.

    The step is the first complete one, else each rank's first of those that were chosen, else the whole capture; at
    most eight ranks. `None` without a timeline.
    """
    if "timeline" not in results or not len(results["timeline"]):
        return None
    windows = _windows(results, steps)
    ops = _with_waits(results["timeline"].to_frame(), results)
    frames = [
        _stretches(ops[(ops["rank"] == rank) & (ops["kind"] == kind)], kind, rank, start, length).assign(
            step=pd.NA if step == NONE else step
        )
        for rank, step, start, length in windows[:MOST_RANKS]
        for kind in KINDS
    ]
    return pd.concat(frames, ignore_index=True) if frames else None


def calls_of(results: Results, steps: tuple[int, ...]) -> pd.DataFrame | None:
    """What begins in the step that is drawn and has a name: `rank`, `kind`, `name`, `ordinal`, `end_ns`, `length_ns`.

    Communication calls (`comm`) by their collective, computing operations (`compute`) by the operator that launched
    them and its shapes, else by their kernel. `ordinal` counts those of a name on a rank, so that runs can be matched;
    `end_ns` is from the step's start. `None` without a timeline.
    """
    if "timeline" not in results or not len(results["timeline"]):
        return None
    windows = pd.DataFrame(_windows(results, steps)[:MOST_RANKS], columns=["rank", "own_step", "from_ns", "window_ns"])
    operations = results["timeline"].table
    operations = operations[operations["kind"] == "compute"]
    named = [operations[["rank", "start_ns", "end_ns"]].assign(kind="compute", name=_work(operations))]
    if "calls" in results and len(results["calls"]):
        calls = results["calls"].to_frame()
        named.append(calls[["rank", "start_ns", "end_ns"]].assign(kind="comm", name=calls["collective"].astype("str")))
    own = pd.concat(named).merge(windows, on="rank").sort_values(["rank", "start_ns"], kind="stable")
    own = own[own["start_ns"].between(own["from_ns"], own["from_ns"] + own["window_ns"], inclusive="left")]
    shown = own.assign(end_ns=own["end_ns"] - own["from_ns"], length_ns=own["end_ns"] - own["start_ns"])
    return shown.assign(ordinal=shown.groupby(["rank", "kind", "name"]).cumcount())[
        ["rank", "kind", "name", "ordinal", "end_ns", "length_ns"]
    ].reset_index(drop=True)


def _work(operations: pd.DataFrame) -> pd.Series:
    """The operator of each and its shapes, else the short name of its kernel."""
    operator, shapes = (operations[name].astype("object") for name in ("operator", "shapes"))
    called = operator + (" " + shapes).where(shapes.notna(), "")
    return called.where(operator.notna(), operations["name"].astype("object").map(short_name))


def _with_waits(ops: pd.DataFrame, results: Results) -> pd.DataFrame:
    """The operations, of a communication call that waits [start, end − transfer) apart as `wait`."""
    shown = ops[["rank", "kind", "start_ns", "end_ns", "call"]].assign(kind=ops["kind"].astype("str"))
    waits = results["call_waits"].to_frame() if "call_waits" in results else pd.DataFrame()
    if waits.empty:
        return shown
    own = shown.merge(waits[["rank", "call", "wait_ns"]].dropna(), on=["rank", "call"], how="left")
    ends = (own["start_ns"] + own["wait_ns"].fillna(0).astype("int64")).clip(upper=own["end_ns"])
    waiting = own.assign(kind="wait", end_ns=ends)[ends > own["start_ns"]]
    return pd.concat([own.assign(start_ns=ends), waiting], ignore_index=True)


def _windows(results: Results, steps: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Rank, step (or -1), start and length of the window that is drawn."""
    if steps:
        table = results["steps"].to_frame()
        chosen: pd.DataFrame = table[table["step"] == steps[0]][["rank", "step", "start_ns", "window_ns"]]
    else:
        chosen = stretches(results["steps"], results["ranks"]).sort_values("window_start_ns").drop_duplicates("rank")
    return [tuple(map(int, row)) for row in chosen.sort_values("rank").itertuples(index=False)]  # type: ignore[misc]


def _stretches(ops: pd.DataFrame, kind: str, rank: int, start_ns: int, length_ns: int) -> pd.DataFrame:
    """The union of the operations inside the window, with gaps that nobody could see closed."""
    union = Intervals.of(ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()).clip(start_ns, start_ns + length_ns)
    starts, ends = union.starts, union.ends
    if len(starts):
        is_apart = np.append(True, starts[1:] - ends[:-1] > length_ns // RESOLUTION)
        first = np.flatnonzero(is_apart)
        starts, ends = starts[first], ends[np.append(first[1:] - 1, len(ends) - 1)]
    return pd.DataFrame(
        {"rank": rank, "kind": kind, "start_ns": starts - start_ns, "end_ns": ends - start_ns, "window_ns": length_ns}
    )
