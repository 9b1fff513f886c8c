"""When and on which thread GPU operations were launched; those of a graph as it was captured."""

import numpy as np

from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of


def launch_moments(trace: RankTrace, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments (ns) and threads of these rows of `gpu_ops`, which have a launch."""
    launch = array_of(trace.gpu_ops, "launch")[rows]
    starts, threads = (array_of(trace.api_calls, name)[launch] for name in ("start_ns", "thread"))
    captured = whole_of(trace.gpu_ops, "captured_ns")[rows]
    return np.where(captured == NONE, starts, captured), threads
