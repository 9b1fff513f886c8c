"""Which ranks of a job exchange messages with each other: the stages of its pipelines."""

import numpy as np

from traceanalyzer.analyses.pipelines.hubs import is_of_hub
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.model.tables import array_of


def linked_ranks(job: Job) -> np.ndarray:
    """For each two ranks whether they do, directly or not.

    Messages between attention kernels, that go round, are no stages', nor are those around one rank (`hubs`).
    """
    place = {rank: column for column, rank in enumerate(job.nodes)}
    joins = job.joins
    of_message = joins[joins["collective"].isin((*POINT_TO_POINT, "send_recv")) & ~_is_ring(job)]
    pairs = of_message.groupby("instance")["rank"].agg(["min", "max"]).drop_duplicates()
    pairs = pairs[~is_of_hub(pairs.set_axis(["one", "other"], axis=1))]
    lowest, before = np.arange(len(place)), None
    one, other = (pairs[end].map(place).to_numpy(dtype=np.int64) for end in ("min", "max"))
    while before is None or (lowest != before).any():
        before = lowest.copy()
        least = np.minimum(lowest[one], lowest[other])
        np.minimum.at(lowest, one, least)
        np.minimum.at(lowest, other, least)
        lowest = lowest[lowest]
    linked: np.ndarray = lowest[:, None] == lowest
    return linked


def _is_ring(job: Job) -> np.ndarray:
    """Rows of `Job.joins` of messages that go round."""
    op = array_of(job.joins, "op")
    found = np.zeros(len(op), dtype=bool)
    for rank, nodes in job.nodes.items():
        rows = job.joins_of(rank)
        found[rows] = array_of(nodes.piece.ops, "is_ring")[op[rows]]
    return found
