"""When each rank does nothing but wait for another one, and in which call."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.exposed_comm import STRETCH, exposed_of, transfer_and_wait
from traceanalyzer.analyses.names import WaitsColumn
from traceanalyzer.analyses.time.intervals import Intervals, overlapping
from traceanalyzer.analyses.time.side_by_side import side_by_side
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, column_of, table_of, without_rows


class Waits(Result[WaitsColumn]):
    """One row for each stretch of exposed wait; a rank's rows add up to its exposed wait."""

    title: ClassVar[str] = "Stretches of exposed wait"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "start_ns")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank that waits."),
        "start_ns": Column.moment("Start."),
        "end_ns": Column.moment("End."),
        "call": Column.ident("Call that waits; of several at once, the one that began to wait first."),
        "instance": Column.ident("Its instance."),
        "waits_for": Column.ident("Rank with the least wait in the instance."),
    }


def per_rank(_trace: RankTrace, exposed_comm: pd.DataFrame) -> pd.DataFrame:
    """The stretches in which communication but no compute runs, as `exposed_comm` has them."""
    return exposed_comm


def across(parts: Mapping[int, pd.DataFrame], call_waits: CallWaits) -> Waits:
    """Cut each rank's exposed wait by the calls that wait."""
    exposed = stack(parts, STRETCH)
    table = side_by_side(_cut, exposed, call_waits.table) if len(exposed) and len(call_waits) else exposed[:0]
    return Waits(table if len(table) else without_rows(Waits.columns))


def _cut(stretches: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    return cut_by_calls(transfer_and_wait(exposed_of(stretches), calls)[1], calls)


def cut_by_calls(wait: Intervals, calls: pd.DataFrame) -> pd.DataFrame:
    """Stretches of waiting, of all ranks side by side, cut by the calls that wait; of several at once by the first."""
    begins, lengths = array_of(calls, "start_ns"), calls["wait_ns"].to_numpy(dtype=np.int64, na_value=0)
    waiting = np.flatnonzero(lengths > 0)
    waiting = waiting[np.argsort(begins[waiting], kind="stable")]
    starts = begins[waiting]
    ends = starts + lengths[waiting]
    reach = np.maximum.accumulate(np.concatenate([starts[:1], ends]))[:-1] if len(starts) else starts
    starts, ends = np.maximum(starts, reach), np.maximum(ends, reach)
    call, piece = overlapping(starts, ends, wait)
    return table_of(
        {
            "rank": array_of(calls, "rank")[waiting[call]],
            "start_ns": np.maximum(starts[call], wait.starts[piece]),
            "end_ns": np.minimum(ends[call], wait.ends[piece]),
            **{name: column_of(calls, name)[waiting[call]] for name in ("call", "instance", "waits_for")},
        }
    )
