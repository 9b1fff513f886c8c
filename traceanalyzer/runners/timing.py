"""How long each step takes without a profiler: CUDA events on a GPU, the clock on a CPU."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


class StepTimer:
    """Marks step boundaries without making the host wait; read the times after a synchronise."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._events: list[torch.cuda.Event] = []
        self._clock_ns: list[int] = []

    def mark(self) -> None:
        """The end of one step and the start of the next."""
        if self._is_cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        else:
            self._clock_ns.append(time.perf_counter_ns())

    def step_times_ns(self) -> list[int]:
        """Each step's time, in order."""
        if self._is_cuda:
            torch.cuda.synchronize()
            return [round(a.elapsed_time(b) * 1e6) for a, b in pairwise(self._events)]
        return [b - a for a, b in pairwise(self._clock_ns)]


def from_all_ranks(mine: T) -> list[T]:
    """What each rank gives, by rank."""
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    gathered = [mine] * ranks
    if ranks > 1:
        dist.all_gather_object(gathered, mine)
    return gathered


def slowest(step_times_ns_by_rank: list[list[int]]) -> list[int]:
    """The times of the rank that took longest in all: a job is as fast as its slowest rank."""
    return max(step_times_ns_by_rank, key=sum)


def peak_memory(rank: int, device: torch.device) -> dict[str, int | None]:
    """This rank's allocator peaks since they were last reset; None without a GPU, or before it was used."""
    if device.type != "cuda" or not torch.cuda.is_initialized():
        return {"rank": rank, "peak_allocated_bytes": None, "peak_reserved_bytes": None}
    return {
        "rank": rank,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
    }
