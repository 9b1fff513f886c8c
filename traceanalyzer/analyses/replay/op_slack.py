"""By how much each operation of a job could end later without making the job longer."""

import numpy as np

from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.analyses.replay.windows import Windows
from traceanalyzer.model.schema import NONE

_NEVER = 1 << 60


def slack_of_ops(job: Job, windows: Windows, times: np.ndarray) -> dict[int, np.ndarray]:
    """For each rank the slack of its operations, in the order of its piece; -1 for those outside the window.

    `times` are when the recorded job reaches each node.
    """
    end_ns = int(times[windows.ends].max())
    begin_ns = int(times[windows.begin].min())
    # What comes after the window may come as late as it likes.
    latest = np.where(times <= end_ns, end_ns, _NEVER)
    deadlines = job.order.deadlines(job.weights(job.recorded), latest)
    found = {}
    for rank, nodes in job.nodes.items():
        timing = job.recorded.timing[rank]
        sums = nodes.sums(timing)
        ops = nodes.piece.ops
        ends = (ops["start_ns"] + ops["duration_ns"]).to_numpy() - job.origin_ns - job.offset_ns[rank]
        remaining = np.where(nodes.is_single, 0, sums.until_ns - sums.lag_ns - timing.duration_ns)
        latest_end = np.minimum(deadlines[job.node(rank, nodes.end_node)] - remaining, end_ns)
        slack = np.maximum(latest_end - ends, 0)
        inside = (ends <= end_ns) & (ends > begin_ns)
        found[rank] = np.where(inside, slack, NONE)
    return found
