"""Which ranks a timeline keeps when all of them are too many: those that are unlike the others, not the middle."""

from collections.abc import Mapping, Sequence

import numpy as np


def most_unlike_first(lost_ns: Mapping[int, int]) -> list[int]:
    """The ranks by how far they are from the median of what each loses, idle or in exposed communication.

    Who waits loses most; who makes the others wait by computing longer loses least: both stay. Of equally far ones the
    rank that loses more comes first, then the lower number.
    """
    if not lost_ns:
        return []
    middle = float(np.median(list(lost_ns.values())))
    return sorted(lost_ns, key=lambda rank: (-abs(lost_ns[rank] - middle), -lost_ns[rank], rank))


def fitting(order: Sequence[int], operations: Mapping[int, int], most: int) -> list[int]:
    """The ranks, in this order, whose operations together are no more than `most`; at least the first."""
    kept: list[int] = []
    total = 0
    for rank in order:
        if not kept or total + operations[rank] <= most:
            kept.append(rank)
            total += operations[rank]
    return kept
