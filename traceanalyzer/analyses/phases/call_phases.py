"""Phase, range and exposed time of each communication call."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.host.host_activity import names_around_launches, user_ranges
from traceanalyzer.analyses.names import CallPhasesColumn
from traceanalyzer.analyses.phases.op_phases import NAMES
from traceanalyzer.analyses.phases.phase_parts import Share
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, table_of


class CallPhases(Result[CallPhasesColumn]):
    """One row for each communication call, by the number that `calls` gives it."""

    title: ClassVar[str] = "Phases of communication calls"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "call")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "call": Column.ident("Position among the rank's communication operations."),
        "phase": Column.text("Phase in which the host launched it."),
        "range": Column.text("The user's innermost range around the launch.", written=Written.KERNEL),
        "exposed_ns": Column.time(
            "Part of the rank's exposed communication that belongs to the call: no compute runs, and no "
            "communication that started earlier."
        ),
    }


def per_rank(
    trace: RankTrace, calls: pd.DataFrame, phase_of_op: np.ndarray, shares: Mapping[str, Share]
) -> pd.DataFrame:
    """Phase and exposed time inside the window of the rank's calls; the times add up to exposed communication."""
    if calls.empty:
        return pd.DataFrame()
    rows = array_of(calls, "gpu_op")
    own, times = shares["exposed_comm_ns"].inside(trace.window)
    exposed = np.zeros(len(trace.gpu_ops), dtype=np.int64)
    np.add.at(exposed, own, times)
    return table_of(
        {
            "call": array_of(calls, "call"),
            "phase": np.array(NAMES, dtype=object)[phase_of_op[rows]],
            "range": names_around_launches(user_ranges(trace), trace, array_of(trace.gpu_ops, "launch")[rows]),
            "exposed_ns": exposed[rows],
        }
    )


def across(parts: Mapping[int, pd.DataFrame]) -> CallPhases:
    """The ranks' rows under each other."""
    return CallPhases(stack(parts, tuple(CallPhases.columns)))
