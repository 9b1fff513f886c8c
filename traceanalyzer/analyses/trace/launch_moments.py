"""When and on which thread GPU operations were launched; those of a graph as it was captured."""

import numpy as np

from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE


def launch_moments(trace: RankTrace, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments (ns) and threads of these rows of `gpu_ops`, which have a launch."""
    ops = trace.gpu_ops.iloc[rows]
    calls = trace.api_calls.iloc[ops["launch"].to_numpy()]
    captured = ops["captured_ns"].to_numpy(dtype=np.int64, na_value=NONE)
    return np.where(captured == NONE, calls["start_ns"].to_numpy(), captured), calls["thread"].to_numpy()
