"""What each thread of a rank is for, from what it runs."""

import numpy as np

from traceanalyzer.analyses.host import host_names
from traceanalyzer.model import RankTrace

MAIN, AUTOGRAD, DATA, COLLECTIVES, OTHER = "main", "autograd", "data loader", "collectives", "other"


def thread_roles(trace: RankTrace) -> dict[int, str]:
    """Role of each thread with ranges, operators or Python frames.

    The main thread runs the steps; without steps it is the one with most operators, else with most ranges. Of the
    others, one that runs autograd's nodes is autograd's, one whose ranges are all collectives of the CPU is theirs, one
    whose ranges are all of the data loader's is its.
    """
    roles = dict.fromkeys(
        np.unique([*trace.host_ops["thread"].unique(), *trace.ranges["thread"].unique()]).tolist(), OTHER
    )
    names = trace.ranges["name"]
    for role, test in ((COLLECTIVES, host_names.is_cpu_collective), (DATA, host_names.is_data)):
        is_of = host_names.matches(names, test)
        every = trace.ranges.assign(is_of=is_of).groupby("thread")["is_of"].all()
        roles |= dict.fromkeys(every.index[every].tolist(), role)
    nodes = host_names.matches(trace.host_ops["name"], host_names.is_autograd_node)
    roles |= dict.fromkeys(trace.host_ops.loc[nodes, "thread"].unique().tolist(), AUTOGRAD)
    main = _main(trace)
    return roles | ({main: MAIN} if main is not None else {})


def _main(trace: RankTrace) -> int | None:
    is_step = trace.ranges["name"].isin(trace.steps["name"].cat.categories)
    for threads in (trace.ranges.loc[is_step, "thread"], trace.host_ops["thread"], trace.ranges["thread"]):
        if len(threads):
            return int(threads.mode().iloc[0])
    return None
