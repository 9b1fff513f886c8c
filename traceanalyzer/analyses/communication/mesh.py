"""The job's mesh, as its process groups span it: one axis for each make of groups."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

import pandas as pd

from traceanalyzer.analyses.base import Result

Axis = tuple[int, int, tuple[str, ...]]
"""Stride, size and roles."""


def mesh(groups: Result, world_size: int | None) -> str | None:
    """As `mesh_of`, of a Result."""
    return mesh_of(groups.table, world_size)


def mesh_of(groups: pd.DataFrame, world_size: int | None) -> str | None:
    """`data parallel 2 × tensor parallel 4`, outermost first; `None` where the groups span no mesh of all ranks.

    Axes multiply: each one's stride is the product of the sizes of those inside it, and all sizes make the world's. A
    group of all ranks is the mesh only when there is no other.
    """
    rows = groups[["stride", "group_size", "role"]].dropna(subset=["stride", "group_size"])
    found: dict[tuple[int, int], list[str]] = {}
    for stride, size, role in rows.itertuples(index=False):
        held = found.setdefault((int(stride), int(size)), [])
        if isinstance(role, str) and role not in held:
            held.append(role)
    axes = [(stride, size, tuple(roles)) for (stride, size), roles in found.items()]
    inner = [axis for axis in axes if axis[1] != world_size] or axes
    inner.sort(key=lambda axis: axis[0], reverse=True)
    if not world_size or not _spans(inner, world_size) or not any(roles for _, _, roles in inner):
        return None
    return " × ".join(f"{' and '.join(roles) or 'axis'} {size}" for _, size, roles in inner)


def _spans(axes: Sequence[Axis], world_size: int) -> bool:
    sizes = [size for _, size, _ in reversed(axes)]
    products = [1, *accumulate(sizes, mul)]
    return [stride for stride, _, _ in reversed(axes)] == products[:-1] and products[-1] == world_size
