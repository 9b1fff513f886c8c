"""Which thread tells what the host did in stretches of time."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.analyses.host import idle_causes
from traceanalyzer.analyses.time.intervals import Intervals, overlapping
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of


def who_tells(
    trace: RankTrace, thread: int, starts: np.ndarray, launched: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Threads, the stretches of which each one tells, and which of the given stretches each of those lies in.

    That is the launching thread; of JAX, whose program only waits for its runtime's threads while those launch, they
    tell as long as they record something, and the program's own thread the rest.
    """
    program = idle_causes.program_thread(trace)
    if program is None or program == thread:
        yield thread, starts, launched, np.arange(len(starts))
        return
    tables = (trace.api_calls, trace.host_ops, trace.ranges)
    recorded = Intervals.of(*(
        np.concatenate([array_of(table, name)[array_of(table, "thread") == thread] for table in tables])
        for name in ("start_ns", "end_ns")
    ))  # fmt: skip
    rest = Intervals.of([int(starts.min())], [int(launched.max())]) - recorded
    for one, told in ((thread, recorded), (program, rest)):
        held, stretch = overlapping(starts, launched, told)
        since, until = np.maximum(told.starts[stretch], starts[held]), np.minimum(told.ends[stretch], launched[held])
        yield one, since, until, held
