"""How many processes suit some files, those that save more time than their start takes; and how they are started."""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from traceanalyzer.forks import IS_PROGRAM, can_fork, quiet_fork, signals_come, signals_wait
from traceanalyzer.free_memory import fitting, fitting_beside

T = TypeVar("T")

CORES_A_FILE: ContextVar[int] = ContextVar("cores a file", default=1)
"""How many processes may work at one file that is read here. One unless the program says so: those who use the
library need not have a main module that can be imported again."""

MOST_BYTES = 2 << 30
"""What processes that work at one file take together, where nobody says how many; one alone takes what it must."""

ROOM_BYTES: ContextVar[int | None] = ContextVar("bytes for processes at one file", default=MOST_BYTES)
"""The same of those that work at one file here; `None` for what is free."""

SECONDS_A_FILE = 0.5
"""What every analysis takes for one rank, however short."""

SECONDS_A_MB = 0.45
"""What a compressed file, a database or Parquet takes on top, and `SECONDS_A_PLAIN_MB` a file of plain text."""

SECONDS_A_PLAIN_MB = 0.04

START_SECONDS, FORK_SECONDS = 1.5, 0.6
"""What it takes to start processes, and to fork this one; those that save less are not started."""

WORTH_A_FORK_S = 2.5
"""Of files that take longer there is enough to join, draw and write: what a fork changes in memory is copied first."""


def processes_for(files: Sequence[Path], jobs: int | None) -> int:
    """As many processes as asked for; else those that save more than their start takes, one for each core at most."""
    if jobs is not None:
        return max(1, min(jobs, len(files)))
    processes = fitting(max(1, min(len(files), _cores())), max(map(_most_bytes, files), default=0))
    saved_s = sum(_work_s(file) for file in files) * (1 - 1 / processes)
    return processes if saved_s > (FORK_SECONDS if can_fork() else START_SECONDS) else 1


def room_bytes(files: int, jobs: object) -> int | None:
    """What the processes may take that work at so many files; `None` for what is free, where the user says how many."""
    return None if isinstance(jobs, int) else files * MOST_BYTES


def processes_beside(files: Sequence[Path], jobs: object) -> int:
    """How many may do what follows the reading: one for each core where a fork saves more than it costs.

    And where they find room, each with its share of the Results' making, the rules and the page.
    """
    if not can_fork() or sum(_work_s(file) for file in files) <= WORTH_A_FORK_S:
        return 1
    each_bytes = min(_TIMES_TEXT_BESIDE * sum(map(_text_bytes, files)), _MOST_BYTES_BESIDE)
    wanted = min(jobs, _cores()) if isinstance(jobs, int) else _cores()
    return fitting_beside(wanted, each_bytes, room_bytes(len(files), jobs))


def cores_for_a_file(files: int, jobs: int | None) -> int:
    """How many processes each of so many files that are read at once may have."""
    wanted = max(1, (_cores() if jobs is None else jobs) // max(1, files))
    return fitting_beside(wanted, _DECODING_BYTES, room_bytes(1, jobs))


class Pool(ProcessPoolExecutor):
    """Processes that never see Ctrl-C, not even while they start; this one does, a moment later."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """As of any executor; processes start here. Of one that is broken it is told where the answer is asked for."""
        with signals_wait():
            try:
                return super().submit(fn, *args, **kwargs)
            except BrokenExecutor as error:
                lost: Future[T] = Future()
                lost.set_exception(error)
                return lost

    def end(self) -> None:
        """End the processes where they stand: a file that one reads may take it another minute."""
        processes = [*(self._processes or {}).values()]
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


@contextmanager
def quiet_pool(processes: int, set_up: Callable[[], None] | None = None, files_at_once: int = 0) -> Iterator[Pool]:
    """A pool of processes; what it has not begun when an error comes by is let go.

    Args:
        processes: how many.
        set_up: called in each before its work.
        files_at_once: how many of them read files at once, each with its share of the cores; 0 for other work.
    """
    with _temporary_folder() as place:
        is_forked, told = can_fork(), (set_up, files_at_once, place)
        context = get_context("fork" if is_forked else "spawn")
        pool = Pool(processes, mp_context=context, initializer=_begin, initargs=told)
        try:
            if is_forked:  # all at once, before there is a thread
                with quiet_fork():
                    pool.submit(int)
            yield pool
        except BaseException:
            pool.end()
            raise
        pool.shutdown(wait=True)


@contextmanager
def _temporary_folder() -> Iterator[str | None]:
    """Where processes put what they unpack or fetch: one that is killed removes nothing.

    `None` where no folder can be made.
    """
    try:
        place = tempfile.mkdtemp(prefix="traceanalyzer-")
    except OSError:
        yield None
        return
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _begin(set_up: Callable[[], None] | None, files_at_once: int, temporary: str | None) -> None:
    if temporary:
        tempfile.tempdir = temporary
    signals_come()  # else a pool of which one process was killed waits for ever for the others, which it tells to end
    Thread(target=_end_with_parent, daemon=True).start()
    IS_PROGRAM.set(False)
    CORES_A_FILE.set(cores_for_a_file(files_at_once, None) if files_at_once else 1)
    if set_up:
        set_up()


def _end_with_parent() -> None:
    """No orphan: a process that is killed cannot tell those that it started."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def give_back_freed() -> None:
    """Give the system what was freed in between what is used: glibc keeps it, a third of what a large trace takes."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def hold_memory() -> None:
    """Have glibc keep what is freed for the next table: given back each time, it comes page by page, and zeroed."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        of_c = ctypes.CDLL(None)
        for parameter, size in ((_MMAP_THRESHOLD, _OWN_PIECE_BYTES), (_TRIM_THRESHOLD, _HELD_BYTES)):
            of_c.mallopt(parameter, size)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""As <malloc.h> numbers them."""

_OWN_PIECE_BYTES, _HELD_BYTES = 8 << 20, 64 << 20
"""Larger pieces go back to the system on their own, and so does what is free at the end beyond so much."""


def _work_s(path: Path) -> float:
    """About how long one file takes: enough to tell a moment from many."""
    files = path.iterdir() if path.is_dir() else (path,)
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    return SECONDS_A_FILE + size_mb * (SECONDS_A_PLAIN_MB if path.suffix == ".json" else SECONDS_A_MB)


def _most_bytes(path: Path) -> float:
    """About how much memory a process takes that reads and analyses it, at most."""
    return _LEAST_BYTES + _TIMES_TEXT * _text_bytes(path)


def _text_bytes(path: Path) -> int:
    """About how much text there is in it."""
    files = path.iterdir() if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files) * (1 if path.suffix == ".json" else _TIMES_PACKED)


_LEAST_BYTES, _TIMES_TEXT, _TIMES_PACKED = 128 << 20, 0.6, 10
"""Of a process whatever it reads; for each byte of text; and text for each byte of a packed file."""

_DECODING_BYTES = 64 << 20
"""Of a process that decodes pieces of a file: of no more than some at once."""

_TIMES_TEXT_BESIDE, _MOST_BYTES_BESIDE = 0.1, 2 << 30
"""Of one that does a share of what follows, for each byte of text (what it sends is there twice for a moment); and at
most, for no more is replayed or drawn."""


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
