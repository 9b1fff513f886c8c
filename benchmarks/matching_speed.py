"""How long it takes to match the collectives of all ranks and to split their waits, as jobs grow.

    python benchmarks/matching_speed.py

Tables of calls are made directly: a world group and sub-groups, jittered ends, clocks that differ, ranks whose
captures begin and end at different calls and lack some. Prints seconds, calls a second, and how many of the true
pairs were found.
"""

import time

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication import waits
from traceanalyzer.analyses.communication.matching import described, match
from traceanalyzer.analyses.trace import Ranks

CASES = ((2, 8_000, 2), (8, 8_000, 8), (64, 2_000, 64), (64, 2_000, 8), (1_024, 200, 8))
"""Ranks, calls a rank, ranks a group."""


def main() -> None:
    print("ranks calls/rank group  mode       match_s  across_s  calls/s  matched_pct  wrong")
    for ranks, calls, group in CASES:
        for mode in ("steps", "sequence", "damaged"):
            report(ranks, calls, group, mode)


def report(ranks: int, calls: int, group: int, mode: str) -> None:
    parts, truth = tables(ranks, calls, group, mode)
    stacked = pd.concat([part.assign(rank=rank) for rank, part in parts.items()], ignore_index=True)
    begin = time.perf_counter()
    found, _ = match(described(stacked), parts)
    matched = time.perf_counter()
    numbers = pd.DataFrame({"rank": [*parts], "host": None})
    waits.members_across(parts, Ranks(numbers))
    done = time.perf_counter()
    number = truth[found["row"].to_numpy()]
    groups = pd.Series(number).groupby(found["instance"].to_numpy())
    wrong = int((groups.min() != groups.max()).sum())
    seconds = matched - begin
    print(f"{ranks:5} {calls:10} {group:5}  {mode:9} {seconds:8.2f} {done - matched:9.2f} "
          f"{len(stacked) / seconds:8.0f} {100 * len(found) / len(stacked):12.1f} {wrong:6}")  # fmt: skip


def tables(ranks: int, calls: int, group: int, mode: str) -> tuple[dict[int, pd.DataFrame], np.ndarray]:
    """Calls of each rank, and for every row the number of the true collective."""
    random = np.random.default_rng(0)
    parts, truth = {}, []
    ends = {base: 10**18 + np.cumsum(random.integers(200_000, 2_000_000, calls)) for base in range(0, ranks, group)}
    sizes = random.choice([1 << 20, 1 << 24, 1 << 26], calls, p=[0.2, 0.6, 0.2])
    for rank in range(ranks):
        kept = np.ones(calls, dtype=bool)
        if mode == "damaged":
            kept[: rank % 50] = False
            kept[random.integers(0, calls, 5)] = False
        end = ends[rank - rank % group][kept] + random.integers(0, 5_000, kept.sum())
        end += (rank % 8) * 1_000_000 if mode == "damaged" else 0
        parts[rank] = one_rank(rank, group, np.flatnonzero(kept), end, sizes[kept], mode)
        truth.append((rank // group) * calls + np.flatnonzero(kept))
    return parts, np.concatenate(truth)


def one_rank(rank: int, group: int, number: np.ndarray, end: np.ndarray, size: np.ndarray, mode: str) -> pd.DataFrame:
    base = rank - rank % group
    start = end - np.random.default_rng(rank).integers(50_000, 190_000, len(end))
    absent = pd.array([pd.NA] * len(end), dtype="Int64")
    return pd.DataFrame(
        {
            "call": np.arange(len(end)), "start_ns": start, "end_ns": end, "stream": 17,
            "step": pd.array(number // 100, dtype="Int64"), "collective": "all_reduce",
            "group": f"group{base}", "group_description": "", "group_size": pd.array([group] * len(end), dtype="Int64"),
            "group_ranks": ",".join(str(member) for member in range(base, base + group)),
            "dtype": "Float", "size_bytes": pd.array(size, dtype="Int64"), "root": absent,
            "sequence": pd.array(number, dtype="Int64") if mode == "sequence" else absent,
            "peers": None, "is_uneven": pd.array([False] * len(end), dtype="boolean"), "arguments": "kernel",
            "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "grid": "24x1x1",
            "activity": "kernel", "world_size": absent, "listed_groups": None, "launched_ns": -1, "file": "",
            "is_cut": False,
        }
    )  # fmt: skip


if __name__ == "__main__":
    main()
