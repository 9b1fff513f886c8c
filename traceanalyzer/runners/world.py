"""Which rank this process is, on which device; its process group; an orderly end when another rank dies or hangs."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import (
    HashStore,  # type: ignore[attr-defined]  # public, but not in the stub's __all__
    distributed_c10d,
)

from traceanalyzer.doctor.nccl_log import holds_log, read_logs
from traceanalyzer.errors import UsageError


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


# This rank's trace is still written when another rank died or hangs.


_ENDINGS = (signal.SIGTERM, signal.SIGALRM)


class Terminated(SystemExit):
    """The launcher ended this rank: another one failed, or somebody cancelled the job."""

    def __str__(self) -> str:
        return "ended by SIGTERM, because another rank failed or the job was cancelled"


class Stuck(SystemExit):
    """No step was finished in time: this rank hangs, or waits for one that does."""

    def __str__(self) -> str:
        return "no step was finished within --timeout seconds: this rank hangs, or waits for one that does"


@contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Turn SIGTERM and the alarm of `expect_progress` into exceptions, also while the main thread waits for a GPU.

    torchrun sends SIGTERM when a rank has died and kills half a minute later. Python runs a signal's handler
    only when the main thread returns to it, which a thread inside a synchronise never does: so the signal
    also wakes a thread here that aborts the process groups, and with them the kernels that are waited for.
    """
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    previous_wakeup = signal.set_wakeup_fd(wake_write)
    previous_handlers = {number: signal.signal(number, _unwind) for number in _ENDINGS}
    threading.Thread(target=_abort_when_woken, args=(wake_read,), daemon=True).start()
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_wakeup)
        os.close(wake_write)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGTERM back and expect no step until the block is done: half a trace cannot be read."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    expect_progress(0)
    received: list[int] = []
    previous_handler = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
        if received:
            signal.raise_signal(signal.SIGTERM)


def expect_progress(timeout_s: int) -> None:
    """End this rank in `timeout_s` seconds (0: never), unless called again until then or unwinding has ended.

    NCCL's own watchdog takes a minute longer than its timeout, and kills the process: no trace and no run.json.
    """
    if signal.getsignal(signal.SIGALRM) is _unwind:
        signal.alarm(timeout_s)


def abort_process_groups() -> None:
    """Leave the process group without waiting for ranks that may be gone."""
    abort = getattr(distributed_c10d, "_abort_process_group", None)
    if abort is not None and dist.is_initialized():
        # Aborting what another thread has just aborted is no second failure.
        with suppress(Exception):
            abort()


def _unwind(signal_number: int, frame: object) -> None:
    del frame
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    # An aborted collective has raised already: a second exception would cut short what the first one unwinds.
    if sys.exc_info()[0] is None:
        raise (Stuck if signal_number == signal.SIGALRM else Terminated)(128 + signal_number)


def _abort_when_woken(wake_read: int) -> None:
    # Any handled signal wakes; the pipe's end, on an ordinary exit, reads as nothing.
    while woken := os.read(wake_read, 1):
        if woken[0] in _ENDINGS:
            abort_process_groups()
    os.close(wake_read)
