"""Sequences that repeat: the period of a list of names, and where each repetition begins."""

import numpy as np

from traceanalyzer.analyses.time.intervals import Intervals

_LAGS, _NAMES = 8, 6


def repetitions(codes: np.ndarray, weights: np.ndarray, least: int) -> tuple[np.ndarray, int]:
    """First positions of the repetitions of the finest sequence that repeats, and its length.

    Sequences that follow upon themselves `least` times or more are compared by the weight that they cover; of those
    that cover at least half of what the best one does, the shortest is taken. Empty and 0 when nothing repeats.
    """
    covers = {period: _runs(codes, period, least) for period in _candidates(codes, weights, least)}
    total = np.concatenate([[0], np.cumsum(weights)])
    weight = {period: int((total[ends] - total[starts]).sum()) for period, (starts, ends) in covers.items()}
    if not weight or max(weight.values()) == 0:
        return np.empty(0, dtype=np.int64), 0
    period = min(period for period, covered in weight.items() if 2 * covered >= max(weight.values()))
    starts, ends = covers[period]
    heaviest = int(np.argmax(total[ends] - total[starts]))
    pattern = codes[starts[heaviest] : starts[heaviest] + period]
    return _aligned(codes, starts, ends, pattern), period


def _candidates(codes: np.ndarray, weights: np.ndarray, least: int) -> list[int]:
    """The commonest distances between occurrences of the names that weigh most, up to eight occurrences apart."""
    if len(codes) < least:
        return []
    heaviest = np.argsort(-np.bincount(codes, weights=weights), kind="stable")[:_NAMES]
    found = set()
    for code in heaviest:
        places = np.flatnonzero(codes == code)
        for lag in range(1, min(_LAGS, len(places) - 1) + 1):
            distances = places[lag:] - places[:-lag]
            found.add(int(np.bincount(distances).argmax()))
    return sorted(period for period in found if period * least <= len(codes))


def _runs(codes: np.ndarray, period: int, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Stretches, [start, end) positions, in which each name comes again one period later."""
    same = codes[period:] == codes[:-period]
    places = np.flatnonzero(same)
    joined = Intervals.of(places, places + 1)
    held = joined.ends - joined.starts >= period * (least - 1)
    return joined.starts[held], joined.ends[held] + period


def _aligned(codes: np.ndarray, starts: np.ndarray, ends: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    """Where the pattern begins in those runs that hold it, in whatever rotation they start."""
    period, found = len(pattern), []
    for start, end in zip(starts, ends, strict=True):
        for offset in range(start, min(start + period, end - period + 1)):
            if np.array_equal(codes[offset : offset + period], pattern):
                found.append(np.arange(offset, end - period + 1, period))
                break
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)
