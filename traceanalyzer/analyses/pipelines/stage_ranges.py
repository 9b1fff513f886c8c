"""Which stage computes which microbatch when, as PyTorch's pipeline schedules name it in their ranges."""

import numpy as np
import pandas as pd

from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, rows_where, table_of

FORWARD, BACKWARD = "forward", "backward"
INPUTS, WEIGHTS = "backward of inputs", "backward of weights"

_WORK = {"F": FORWARD, "B": BACKWARD, "I": INPUTS, "W": WEIGHTS}

_SENT = {"SEND_F": FORWARD, "RECV_F": FORWARD, "SEND_B": BACKWARD, "RECV_B": BACKWARD}

# PyTorch's schedules run a list of actions such as 2F0: the third stage's forward of the first microbatch; some of them
# hold a forward and a backward pass, `(3F1;4B0)OVERLAP_F_B`.
_ACTION = (
    r"^PP:\(?(?P<stage>\d+)(?P<what>[A-Z_]+?)(?P<microbatch>\d+)"
    r"(?:;(?P<back_stage>\d+)(?P<back>[BI])(?P<back_microbatch>\d+)\)OVERLAP_F_B)?$"
)


def actions(trace: RankTrace) -> pd.DataFrame:
    """A row for each action that the rank's schedule took: `start_ns`, `end_ns`, `stage`, `what`, `microbatch`.

    `what` is forward, backward or one of its halves, of compute and of messages alike; `is_compute` tells them apart.
    `back`, `back_stage` and `back_microbatch` are of the backward pass in the same action, where there is one.
    Empty where no schedule names its actions.
    """
    names = trace.ranges["name"]
    parsed = names.cat.categories.to_series().str.extract(_ACTION)
    parsed = rows_where(parsed, parsed["what"].isin([*_WORK, *_SENT]))
    rows = rows_where(trace.ranges, names.isin(parsed.index).to_numpy()).reset_index(drop=True)
    told = parsed.reindex(rows["name"].astype("object")).reset_index(drop=True)
    return table_of(
        {
            "start_ns": rows["start_ns"],
            "end_ns": rows["end_ns"],
            "stage": told["stage"].astype("int64"),
            "what": told["what"].map(_WORK | _SENT),
            "microbatch": told["microbatch"].astype("int64"),
            "is_compute": told["what"].isin(_WORK),
            "back": told["back"].map(_WORK),
            **{name: pd.to_numeric(told[name]).astype("Int64") for name in ("back_stage", "back_microbatch")},
        }
    )


def action_at(found: pd.DataFrame, times: np.ndarray) -> np.ndarray:
    """Row of the action at each time on whatever thread, -1 where there is none; actions follow each other."""
    starts, ends = array_of(found, "start_ns"), array_of(found, "end_ns")
    row = np.searchsorted(starts, times, side="right") - 1
    is_inside = (row >= 0) & (times < np.append(ends, 0)[row])
    at: np.ndarray = np.where(is_inside, row, -1)
    return at
