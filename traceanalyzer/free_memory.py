"""How much memory this process may still take, and how many processes find room in it."""

import mmap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FEWER: list[tuple[int, int]] = []
"""Where memory was short: how many processes were wanted, and for how many there was room. `--debug` tells it."""

_CACHED = {"inactive_file", "total_inactive_file"}
"""What a group of processes holds of files, and gives up when memory is short."""


def fitting(processes: int, each_bytes: float) -> int:
    """As many of the processes as find room; this one is there already, and the others take so much each."""
    free = free_bytes() if processes > 1 else None
    return processes if free is None else _noted(processes, 1 + int(free / max(each_bytes, 1)))


def fitting_beside(processes: int, each_bytes: float, most_bytes: float | None) -> int:
    """As many of the processes as find room beside one another, each with so much more than this one holds now.

    Their room is what is free, and what of `most_bytes` this process does not hold; it works alone where there is none.
    """
    if processes < 2:
        return processes
    rooms = (free_bytes(), None if most_bytes is None else most_bytes - anonymous_bytes())
    known = [room for room in rooms if room is not None]
    return _noted(processes, int(min(known) / max(each_bytes, 1))) if known else processes


def _noted(processes: int, fit: int) -> int:
    if fit >= processes:
        return processes
    FEWER.append((processes, max(1, fit)))
    return max(1, fit)


def free_bytes(root: Path = Path("/")) -> int | None:
    """What the machine has left, or a group of processes that this one is in; `None` where the system says neither."""
    known = [*_of_machine(root), *_of_groups(root)]
    return max(0, min(known)) if known else None


def anonymous_bytes() -> int:
    """What this process holds that is of no file, the system's count of it; 0 where it does not say."""
    with suppress(OSError, ValueError, IndexError):
        _, held, of_files, *_ = Path("/proc/self/statm").read_text().split()
        return (int(held) - int(of_files)) * mmap.PAGESIZE
    return 0


def _of_machine(root: Path) -> Iterator[int]:
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) << 10


def _of_groups(root: Path) -> Iterator[int]:
    """Of each group that holds this process and has a limit, as both versions of Linux' control groups tell it."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            number, kinds, path = line.split(":", 2)
            if number == "0":
                yield from _along(root / "sys/fs/cgroup", path, "memory.max", "memory.current")
            elif "memory" in kinds.split(","):
                of_memory = root / "sys/fs/cgroup/memory"
                yield from _along(of_memory, path, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _along(top: Path, path: str, limit: str, used: str) -> Iterator[int]:
    # Within a container the path is often that of the machine, and its own group lies at the top.
    own = top / path.strip("/")
    for place in dict.fromkeys((own, *own.parents)):
        if place.is_relative_to(top):
            with suppress(OSError, ValueError):  # no such group here, or no limit ("max")
                most = int((place / limit).read_text())
                yield most - int((place / used).read_text()) + _cached(place)


def _cached(place: Path) -> int:
    held = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
    return max(int(held.get(name, 0)) for name in _CACHED)
