"""Where a sequence repeats itself: stretches in which the same few codes come over and over."""

import numpy as np
from msgspec import Struct

LEAST_TURNS = 8
"""Of the same codes in a row: fewer are the layers of a small model, or chance."""

_SHORT = 16
"""Every period up to this is looked for; of longer ones those at which many triples come again."""

_LONGEST, _MOST = 512, 8


class Run(Struct, frozen=True):
    """Codes from `start` until before `end`, each the same as the one `period` before it."""

    start: int
    end: int
    period: int


def runs_of(codes: np.ndarray, groups: np.ndarray) -> list[Run]:
    """Runs of eight turns and more within a group (in order), in order; of shorter periods first, none in another."""
    is_free = np.ones(len(codes), dtype=bool)
    found: list[Run] = []
    for period in _periods(codes):
        if len(codes) < LEAST_TURNS * period:
            continue
        same = (codes[period:] == codes[:-period]) & (groups[period:] == groups[:-period])
        same &= is_free[period:] & is_free[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
        starts, ends = edges[::2], edges[1::2] + period
        is_long = ends - starts >= LEAST_TURNS * period
        for start, end in zip(starts[is_long].tolist(), ends[is_long].tolist(), strict=True):
            is_free[start:end] = False
            found.append(Run(start, start + (end - start) // period * period, period))
    return sorted(found, key=lambda run: run.start)


def _periods(codes: np.ndarray) -> list[int]:
    """Short ones, and the distances at which most triples come again, in order."""
    longer: list[int] = []
    if len(codes) > LEAST_TURNS * _SHORT:
        size = int(codes.max()) + 1
        triples = (codes[:-2] * size + codes[1:-1]) * size + codes[2:]
        order = np.argsort(triples, kind="stable")
        apart = np.diff(order)[triples[order][1:] == triples[order][:-1]]
        counts = np.bincount(apart[(apart > _SHORT) & (apart <= _LONGEST)], minlength=1)
        often = np.argsort(-counts, kind="stable")[:_MOST]
        longer = sorted(often[counts[often] > 0].tolist())
    return [*range(1, _SHORT + 1), *longer]
