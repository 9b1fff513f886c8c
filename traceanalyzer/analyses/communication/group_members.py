"""How a group's ranks are written for people, and how they lie in the job: next to each other, or every so many."""

from collections.abc import Sequence
from itertools import pairwise

LISTED = 8
"""Ranks that are written one by one."""


def stride(ranks: Sequence[int]) -> int | None:
    """Distance between a group's neighbouring ranks, in ascending order; `None` where it is not always the same."""
    steps = {after - before for before, after in pairwise(ranks)}
    return steps.pop() if len(steps) == 1 else None


def ranks_text(ranks: Sequence[int], world_size: int | None) -> str:
    """`all 8 ranks`, `ranks 0–3`, `ranks 0, 4, 8, 12`, `ranks 0, 8, … 120`; unlike distances are counted."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if is_whole_job(ranks, world_size):
        return f"all {world_size} ranks"
    step = stride(ranks)
    if step == 1 and len(ranks) > 2:
        return f"ranks {ranks[0]}–{ranks[-1]}"
    if len(ranks) <= LISTED:
        return f"ranks {', '.join(map(str, ranks))}"
    if step is not None:
        return f"ranks {ranks[0]}, {ranks[1]}, … {ranks[-1]}"
    return f"{len(ranks)} ranks, {ranks[0]} to {ranks[-1]}"


def is_whole_job(ranks: Sequence[int], world_size: int | None) -> bool:
    """Whether they are all ranks of a job of more than two: these are not listed."""
    return world_size is not None and len(ranks) == world_size > 2
