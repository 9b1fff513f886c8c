"""An orderly end when another rank died or hangs: this rank's trace is still written."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.distributed import distributed_c10d

if TYPE_CHECKING:
    from collections.abc import Iterator


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
