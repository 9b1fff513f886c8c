"""What a step would take if some communication calls moved nothing, or moved it sooner."""

from dataclasses import replace

import numpy as np
import pandas as pd

from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.gains import Engine


def gain_without(engine: Engine, calls: pd.DataFrame) -> Gain:
    """The job with the transfers of these calls gone (`rank` and `call` of each)."""
    keys = pd.MultiIndex.from_frame(calls[["rank", "call"]].astype("int64"))
    is_gone = pd.MultiIndex.from_frame(engine.job.joins[["rank", "call"]].astype("int64")).isin(keys)
    return gain_of_transfers(engine, np.where(is_gone, 0, engine.job.recorded.transfer_ns))


def gain_of_transfers(engine: Engine, transfer_ns: np.ndarray) -> Gain:
    """The job with transfers of these lengths, one for each row of its `joins`; none may be longer than recorded."""
    job, recorded = engine.job, engine.job.recorded
    is_other = transfer_ns < recorded.transfer_ns
    timing = {}
    for rank, own in recorded.timing.items():
        rows = job.joins_of(rank)
        rows = rows[is_other[rows]]
        longest = np.zeros_like(own.duration_ns)
        op = job.joins["op"].to_numpy()[rows]
        np.maximum.at(longest, op, transfer_ns[rows])
        duration = own.duration_ns.copy()
        duration[op] = np.minimum(duration[op], longest[op])
        timing[rank] = replace(own, duration_ns=duration)
    return engine.gain_of(replace(recorded, timing=timing, transfer_ns=transfer_ns))
