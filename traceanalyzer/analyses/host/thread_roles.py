"""What each thread of a rank is for, from what it runs."""

from collections.abc import Mapping

import numpy as np

from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named_so
from traceanalyzer.model.tables import array_of

MAIN, AUTOGRAD, DATA, COLLECTIVES, OTHER = "main", "autograd", "data loader", "collectives", "other"


@once_a_trace
def thread_roles(trace: RankTrace) -> Mapping[int, str]:
    """Role of each thread with ranges, operators or Python frames.

    The main thread runs the steps; without steps it is the one with most operators, else with most ranges. Of the
    others, one that runs autograd's nodes is autograd's, one whose ranges are all collectives of the CPU is theirs, one
    whose ranges are all of the data loader's is its.
    """
    ran, thread = (array_of(table, "thread") for table in (trace.host_ops, trace.ranges))
    roles = dict.fromkeys(np.union1d(ran, thread).tolist(), OTHER)
    names = trace.ranges["name"]
    for role, test in ((COLLECTIVES, host_names.is_cpu_collective), (DATA, host_names.is_data)):
        is_of = host_names.matches(names, test)
        if is_of.any():
            roles |= dict.fromkeys(np.setdiff1d(thread[is_of], thread[~is_of]).tolist(), role)
    nodes = rows_named_so(trace.host_ops, host_names.is_autograd_node)
    roles |= dict.fromkeys(np.unique(ran[nodes]).tolist(), AUTOGRAD)
    main = _main(trace)
    return roles | ({main: MAIN} if main is not None else {})


def _main(trace: RankTrace) -> int | None:
    is_step = rows_named_so(trace.ranges, set(trace.steps["name"].cat.categories).__contains__)
    ran, thread = (array_of(table, "thread") for table in (trace.host_ops, trace.ranges))
    for threads in (thread[is_step], ran, thread):
        if len(threads):
            distinct, counts = np.unique(threads, return_counts=True)
            return int(distinct[counts.argmax()])
    return None
