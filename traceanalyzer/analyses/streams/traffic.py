"""What a GPU operation does for data movement: compute, communication, upload, download, exchange or on-device."""

import numpy as np

from traceanalyzer import kinds
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import is_name
from traceanalyzer.model.tables import columns_of

CLASSES = ("compute", "communication", "upload", "download", "exchange", "device memory", "unknown")
"""Upload is host to device, download device to host, exchange a copy between two GPUs; `device memory` is memset and
copies within the GPU (and within the host); `unknown` a CUDA graph that was recorded as one operation."""

UNKNOWN = CLASSES[-1]

_OF_DIRECTION = {"HtoD": "upload", "DtoH": "download", "PtoP": "exchange"}


_OF_KIND = {"comm": "communication", kinds.UNKNOWN: UNKNOWN}
"""Of kernels and graphs; the others are compute."""


@once_a_trace
def op_classes(trace: RankTrace) -> np.ndarray:
    """Position in `CLASSES` of each GPU operation."""
    ops = columns_of(trace.gpu_ops)
    directions, kind = ops["direction"], ops["kind"]
    of_direction = [_OF_DIRECTION.get(name, "device memory") for name in directions.categories.tolist()]
    copies = np.array([CLASSES.index(name) for name in (*of_direction, "device memory")])[directions.codes]
    is_kernel = is_name(ops["activity"], "kernel", "graph")
    of_kind = [_OF_KIND.get(name, "compute") for name in kind.categories.tolist()]
    kernels = np.array([CLASSES.index(name) for name in (*of_kind, "compute")])[kind.codes]
    classes: np.ndarray = np.where(is_kernel, kernels, copies)
    return classes


def unions(starts: np.ndarray, ends: np.ndarray, classes: np.ndarray) -> dict[str, Intervals]:
    """Union of the operations of each class."""
    held = np.bincount(classes, minlength=len(CLASSES))
    masks = (classes == number if held[number] else None for number in range(len(CLASSES)))
    return {
        name: EMPTY if mask is None else Intervals.of(starts[mask], ends[mask])
        for name, mask in zip(CLASSES, masks, strict=True)
    }


def pair_times(unions_of: list[Intervals], start_ns: int, end_ns: int) -> np.ndarray:
    """Matrix of the time, ns, in which each two of the unions both run inside [start, end); the diagonal is busy time.

    One sweep over all edges; sums of integers in float64 are exact up to 2⁵³ ns.
    """
    clipped = [own.clip(start_ns, end_ns) for own in unions_of]
    count = len(clipped)
    times = np.concatenate([edge for own in clipped for edge in (own.starts, own.ends)] or [np.empty(0, np.int64)])
    matrix = np.zeros((count, count))
    if not len(times):
        return matrix.astype(np.int64)
    change = np.concatenate([np.repeat([1, -1], len(own)) for own in clipped])
    owner = np.repeat(np.arange(count), [2 * len(own) for own in clipped])
    order = np.argsort(times, kind="stable")
    lengths = np.diff(times[order], append=times[order][-1])
    depth = np.zeros(count, dtype=np.int64)
    for part in np.array_split(np.arange(len(order)), max(1, len(order) // 65_536)):
        steps = np.zeros((len(part), count), dtype=np.int64)
        steps[np.arange(len(part)), owner[order[part]]] = change[order[part]]
        active = depth + np.cumsum(steps, axis=0)
        depth = active[-1]
        runs = (active > 0).astype(np.float64)
        matrix += (runs * lengths[part][:, None]).T @ runs
    return np.rint(matrix).astype(np.int64)
