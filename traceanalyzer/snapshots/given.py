"""What the allocator gave for each request: the history has what was asked for only.

A request is rounded up to 512 bytes and cut from the start of a free block; what is left of that block stays with it
where it is too small to be of use: up to 1 MiB in the pool of large blocks, nothing in that of small ones or in
expandable segments (`c10/cuda/CUDACachingAllocator.cpp`: `round_size`, `should_split`). So the block ends where the
next block in use begins, or its segment ends, if that is near enough.
"""

from bisect import bisect_right, insort

import numpy as np
import pandas as pd

from traceanalyzer.snapshots.reading import Snapshot

_ROUND_BYTES = 512
_SMALL_BYTES = 1 << 20
_OF_POOL = "large"

MOST_EVENTS = 4_000_000
"""Longer histories are followed no further: their blocks count as rounded."""


def given_bytes(snapshot: Snapshot, lives: pd.DataFrame) -> tuple[np.ndarray, bool]:
    """Bytes of each row of `lives`, and whether they are exact: those of the blocks at the end are told, and agree."""
    rounded = rounded_bytes(lives["size_bytes"].to_numpy())
    sizes = rounded.copy()
    told = dict(zip(snapshot.blocks["addr"], snapshot.blocks["size_bytes"], strict=True))
    at_end = (lives["died"] == len(snapshot.history)).to_numpy()
    known = np.array([told.get(addr, 0) for addr in lives["addr"][at_end]], dtype=np.int64)
    if not _is_simple(snapshot) or 2 * len(lives) > MOST_EVENTS:
        sizes[at_end] = known
        return sizes, False
    sizes += _left_over(snapshot, lives, rounded)
    followed = at_end & (lives["born"] >= 0).to_numpy()
    is_exact = bool((sizes[followed] == known[followed[at_end]]).all()) and not (lives["stack"] == -1).any()
    sizes[at_end] = known
    return sizes, is_exact


def rounded_bytes(sizes: np.ndarray) -> np.ndarray:
    """Requests rounded up to whole units of 512 bytes, at least one."""
    made: np.ndarray = np.maximum(-(-sizes // _ROUND_BYTES), 1) * _ROUND_BYTES
    return made


def allocated(snapshot: Snapshot, lives: pd.DataFrame, given: np.ndarray) -> np.ndarray:
    """What `torch.cuda.memory_allocated` was after each event: a block counts from its request to that of its release.

    Its memory is free for others only when the streams that used it have come so far: until then it is active.
    """
    count = len(snapshot.history)
    until = _released(snapshot, lives)
    change = np.zeros(count + 1, dtype=np.int64)
    np.add.at(change, np.maximum(lives["born"].to_numpy(), 0), np.where(lives["born"] >= 0, given, 0))
    np.subtract.at(change, until, given)
    before = int(given[(lives["born"] < 0).to_numpy()].sum())
    level: np.ndarray = before + np.cumsum(change[:count])
    return level


def _released(snapshot: Snapshot, lives: pd.DataFrame) -> np.ndarray:
    """Position of the request by which each block was released; the history's length where there is none."""
    count = len(snapshot.history)
    is_request = (snapshot.history["action"] == "free_requested").to_numpy()
    asked = np.flatnonzero(is_request)
    requests = pd.DataFrame({"at": asked, "addr": snapshot.history["addr"].to_numpy()[asked]})
    rows = lives[["addr", "born", "died"]].assign(row=np.arange(len(lives))).sort_values("died", kind="stable")
    found = pd.merge_asof(rows, requests.sort_values("at"), left_on="died", right_on="at", by="addr")
    at = np.full(len(lives), -1, dtype=np.int64)
    at[found["row"].to_numpy()] = found["at"].fillna(-1).to_numpy(dtype=np.int64)
    until: np.ndarray = np.where(at > lives["born"].to_numpy(), at, np.minimum(lives["died"].to_numpy(), count))
    return until


def _is_simple(snapshot: Snapshot) -> bool:
    """Whether the rules above are all: no setting rounds otherwise or forbids to split."""
    settings = snapshot.settings
    powers = settings.get("roundup_power2_divisions") or {}
    limit = settings.get("max_split_size", -1)
    is_split_always = not isinstance(limit, int) or limit in (-1, 2**63 - 1)
    divisions = powers.values() if isinstance(powers, dict) else [powers]
    return is_split_always and not any(divisions)


def _left_over(snapshot: Snapshot, lives: pd.DataFrame, rounded: np.ndarray) -> np.ndarray:
    """What of a free block stayed with each block that was cut from it."""
    segments = _segments(snapshot)
    starts = sorted(segments)
    left = np.zeros(len(lives), dtype=np.int64)
    living: dict[int, list[int]] = {start: [] for start in starts}
    addr = lives["addr"].to_numpy()
    home = np.searchsorted(np.array(starts, dtype=np.int64), addr, side="right") - 1
    born, died = lives["born"].to_numpy(), lives["died"].to_numpy()
    rows = np.arange(len(lives))
    times = np.concatenate([born, died])
    events = np.concatenate([rows, -1 - rows])
    for event in events[np.lexsort((events >= 0, times))].tolist():
        row = event if event >= 0 else -1 - event
        if home[row] < 0:
            continue
        segment = starts[home[row]]
        inside = living[segment]
        if event < 0:
            place = bisect_right(inside, int(addr[row])) - 1
            if place >= 0 and inside[place] == addr[row]:
                inside.pop(place)
            continue
        size, pool, is_expandable = segments[segment]
        if born[row] >= 0 and pool == _OF_POOL and not is_expandable:
            place = bisect_right(inside, int(addr[row]))
            after = inside[place] if place < len(inside) else segment + size
            rest = after - (int(addr[row]) + int(rounded[row]))
            left[row] = rest if 0 < rest <= _SMALL_BYTES else 0
        insort(inside, int(addr[row]))
    return left


def _segments(snapshot: Snapshot) -> dict[int, tuple[int, str, bool]]:
    """Start → size, pool, whether it is expandable: of segments at the end, and those that the history freed."""
    table = snapshot.segments
    columns = (table["addr"], table["size_bytes"], table["type"], table["is_expandable"])
    found = {int(addr): (int(size), str(pool), bool(grows)) for addr, size, pool, grows in zip(*columns, strict=True)}
    freed = snapshot.history[snapshot.history["action"] == "segment_free"]
    for addr, size in zip(freed["addr"].tolist(), freed["size_bytes"].tolist(), strict=True):
        found.setdefault(addr, (size, _OF_POOL if size > 2 * _SMALL_BYTES else "small", False))
    return found
