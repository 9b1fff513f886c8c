"""PyTorch's memory snapshot of each rank: on request with the history of a run, and of a run out of memory."""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from traceanalyzer.runners.world import World

NAME = "memory_snapshot.pickle"


@contextmanager
def snapshots(out: Path, world: World, *, is_wanted: bool) -> Iterator[None]:
    """Write `out/rank_<r>/memory_snapshot.pickle` when the block ends, if asked, and when it runs out of memory.

    The history of allocations is recorded only if asked: it slows the host. Without it a snapshot has the
    memory in use at the end, but not by which line.
    """
    if not world.is_cuda:
        yield
        return
    if is_wanted:  # of more events the older ones are dropped
        torch.cuda.memory._record_memory_history(max_entries=1_000_000)  # noqa: SLF001 - PyTorch has no other name
    path = out / f"rank_{world.rank}" / NAME
    path.unlink(missing_ok=True)
    try:
        yield
    except torch.OutOfMemoryError:
        _write(path)
        raise
    if is_wanted:
        _write(path)


def _write(path: Path) -> None:
    """Under its name only when it is whole; what cannot be written hides no error of the run."""
    partial = path.with_suffix(".partial")
    with contextlib.suppress(OSError, RuntimeError):
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.cuda.memory._dump_snapshot(str(partial))  # noqa: SLF001 - PyTorch has no other name
        partial.replace(path)
