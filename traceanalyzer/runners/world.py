"""Which rank this process is, on which device, and the process group that it joins and leaves."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but not in the stub's __all__

from traceanalyzer.doctor.nccl_log import holds_log, read_logs
from traceanalyzer.errors import UsageError
from traceanalyzer.runners.shutdown import abort_process_groups

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class World:
    """This process among the ranks of the job."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_cuda(self) -> bool:
        """Whether this rank has a GPU."""
        return self.device.type == "cuda"

    def synchronize(self) -> None:
        """Wait for the device, then for every rank."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)
        if self.size > 1:
            dist.barrier()


def is_under_torchrun() -> bool:
    """Whether a launcher has given this process a rank."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def world_size() -> int:
    """Ranks in the job: 1 without a launcher."""
    return int(os.environ["WORLD_SIZE"]) if is_under_torchrun() else 1


def require_devices(requested: str | None, ranks: int) -> None:
    """Refuse to start that many ranks on this host where it has not as many GPUs and none was declined.

    Raises:
        UsageError: there is no GPU, or fewer than there are ranks.
    """
    if requested == "cpu":
        return
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not gpus:
        raise UsageError("no CUDA device was found: add --device cpu to train a small model over gloo instead")
    if ranks > gpus:
        raise UsageError(f"{ranks} ranks, and this host has {gpus} GPUs: start fewer (--ranks), or add --device cpu")


def choose_device(requested: str | None) -> torch.device:
    """The rank's device: its GPU unless `--device cpu` was asked for.

    Raises:
        UsageError: there is no GPU, or fewer than there are ranks on this host.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    require_devices(requested, local_rank + 1)
    return torch.device("cpu") if requested == "cpu" else torch.device("cuda", local_rank)


def log_nccl(folder: Path) -> None:
    """Have this rank's NCCL write down how it connects, for `transports`; not where the user has set NCCL_DEBUG."""
    if "NCCL_DEBUG" not in os.environ:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"nccl.{os.environ.get('RANK', '0')}.log"
        _own_logs.append(file)
        os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": str(file)}


_own_logs = list[Path]()
"""Of this process; the user's own log is left alone."""


def transports() -> list[str] | None:
    """By which of NCCL's ways this rank sends (`P2P/CUMEM`, `SHM/direct`), each once; `None` where it is unknown."""
    files = [file for file in _own_logs if file.is_file()]
    texts = [(file.name, file.read_text(encoding="utf-8", errors="replace")) for file in files]
    for file in files:
        file.unlink()
    logs = read_logs([text for text in texts if holds_log(text[1])])
    return sorted({link.transport for log in logs for link in log.links}) or None


@contextmanager
def joined(device: torch.device, timeout_s: int) -> Iterator[World]:
    """Join the process group (NCCL on GPUs, gloo on CPU), and leave it at the end.

    A collective that a dead rank never joins ends after `timeout_s` seconds, not never. With NCCL after twice as
    long: its watchdog kills the process, so that steps which expect progress in `timeout_s` have to end first.
    """
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend, timeout_s = "nccl", 2 * timeout_s
    # -1 and no store: from the launcher's variables.
    store, rank, size = (None, -1, -1) if is_under_torchrun() else (HashStore(), 0, 1)
    dist.init_process_group(
        backend,
        timeout=timedelta(seconds=timeout_s),
        device_id=device if device.type == "cuda" else None,
        store=store,
        rank=rank,
        world_size=size,
    )
    world = World(dist.get_rank(), dist.get_world_size(), device)
    try:
        world.synchronize()
        yield world
    except BaseException:
        # An orderly end would wait for ranks that wait for this one.
        abort_process_groups()
        raise
    # Unreachable modules in reference cycles still hold the group: freed after it, at exit, they end in an abort.
    gc.collect()
    dist.destroy_process_group()
