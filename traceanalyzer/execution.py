"""Where work happens: in a fork of this process, or in a pool of processes; and how many find cores and memory.

A fork takes some milliseconds and has in memory all that this process has. A thread that holds a lock while its process
is forked never lets go of it in the fork: so only the program itself forks, where Python has no other thread, and a
pool, whose executor has one, is forked as a whole before. Elsewhere processes are spawned, or work is done here.
"""

import ctypes
import gc
import mmap
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

IS_PROGRAM: ContextVar[bool] = ContextVar("is the program", default=False)
"""Whether this process is the program's own: in a user's, others may have reasons against forks."""

# Work in a fork of this process, which sends back what comes of it.


def can_fork() -> bool:
    """Whether this process may be forked now."""
    # On a Mac system libraries do not outlive a fork; Windows has none.
    return IS_PROGRAM.get() and sys.platform == "linux" and threading.active_count() == 1


def aside(work: Callable[[], T], *, processes: int = 2) -> Callable[[], T]:
    """Begin the work in a fork of this process; what is returned waits for it, and gives or raises what came of it.

    Without a second process, where this one cannot be forked, and where the system ends the fork, it is done here.
    What is returned is called at least once: nobody else waits for the fork.
    """
    if processes < 2 or not can_fork():
        return _finished(work)
    incoming, outgoing = os.pipe()
    with signals_wait(), _quiet_fork():
        try:
            process = os.fork()
        except OSError:  # no memory, or no more processes
            os.close(incoming)
            os.close(outgoing)
            return _finished(work)
        if process == 0:
            _work(work, outgoing)
    os.close(outgoing)
    return _Fork(work, process, os.fdopen(incoming, "rb"))


def all_aside(works: Sequence[Callable[[], T]], *, processes: int = 2) -> list[Callable[[], T]]:
    """Begin each work in a fork of its own, as `aside` does."""
    return [aside(work, processes=processes) for work in works]


_LATER: list[Callable[[], object]] = []


def later(work: Callable[[], object], *, processes: int = 2) -> None:
    """Begin work of which nothing comes back, as `aside` does; it is done when `finish` returns."""
    _LATER.append(aside(work, processes=processes))


def finish() -> None:
    """Wait for all that was begun to be done later, and raise what it raised."""
    while _LATER:
        _LATER.pop()()


class Shared(Generic[T]):
    """Things of which each is given to one process alone, this one or a fork of it; 32,000 at most."""

    def __init__(self, things: Sequence[T]) -> None:
        self._things = things
        self._out, into = os.pipe()
        os.write(into, array("H", range(len(things))).tobytes())  # a pipe holds 64 kB before anybody reads
        os.close(into)

    def rest(self) -> Iterator[T]:
        """Those that are left."""
        while place := array("H", os.read(self._out, 2)):
            yield self._things[place[0]]

    def close(self) -> None:
        """This process asks no more."""
        os.close(self._out)


def _finished(work: Callable[[], T]) -> Callable[[], T]:
    made = work()
    return lambda: made


class _Fork(Generic[T]):
    """A fork at work; called, it gives what came of it."""

    def __init__(self, work: Callable[[], T], process: int, answer: BinaryIO) -> None:
        self._work, self._process, self._answer = work, process, answer
        self._made: list[T] = []

    def __call__(self) -> T:
        if not self._made:
            self._made.append(self._received(self._work))
            del self._work  # and what it held
        return self._made[0]

    def _received(self, work: Callable[[], T]) -> T:
        try:
            with self._answer as answer:
                error, made = pickle.load(answer)  # noqa: S301 - from a fork of this process
        except Exception:  # noqa: BLE001 - the system ended it, or its answer cannot be sent
            return work()
        finally:
            with suppress(ChildProcessError):
                os.waitpid(self._process, 0)
        if error is not None:
            raise error
        result: T = made
        return result


def _work(work: Callable[[], object], outgoing: int) -> None:
    """In the fork: do it, send what came of it, and end without a word to whoever waits for this process' end."""
    try:
        _signals_come()
        IS_PROGRAM.set(False)
        gc.freeze()  # looking for garbage would copy what is shared
        answer: tuple[Exception | None, object]
        try:
            answer = (None, work())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            answer = (error, None)
        with os.fdopen(outgoing, "wb") as pipe:
            pickle.dump(answer, pipe, pickle.HIGHEST_PROTOCOL)
        os._exit(0)
    finally:
        os._exit(1)


@contextmanager
def _quiet_fork() -> Iterator[None]:
    """Without Python's warning of threads, which counts libraries' own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


# Ctrl-C and other signals, while processes start.


_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
"""What asks a process to end; Windows has not all of them."""


@contextmanager
def signals_wait() -> Iterator[None]:
    """Ctrl-C and the signals that end a process come when this is over.

    This thread lets none in. The system gives them to any other thread then, and Python answers those here nonetheless:
    so the answers wait, too.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    numbers = [getattr(signal, name) for name in _ENDING]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    came: list[int] = []
    answers = _replaced(numbers, lambda number, _: came.append(number))
    try:
        yield
    finally:
        try:
            for which, answer in answers.items():
                signal.signal(which, answer)
            for number in came:
                os.kill(os.getpid(), number)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


_Answer = Callable[[int, FrameType | None], object]


def _replaced(numbers: Sequence[signal.Signals], answer: _Answer) -> dict[signal.Signals, Any]:
    """Another answer to those signals that Python answers, where it may be set: what the answers were."""
    if threading.current_thread() is not threading.main_thread():
        return {}  # only the main thread sets answers, and gives them
    return {number: signal.signal(number, answer) for number in numbers if callable(signal.getsignal(number))}


def _signals_come() -> None:
    """In a process that was started while signals wait: they come again, and end it.

    But for Ctrl-C, which reaches every process of the terminal: the one that started this alone answers it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _ENDING[1:]:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [getattr(signal, name) for name in _ENDING])


# Pools of processes. What they take to load is loaded when one is asked for: `--help` asks for none.


class Pool:
    """Processes that never see Ctrl-C, not even while they start; this one does, a moment later."""

    def __init__(self, processes: int, *arguments: Any) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        is_forked = can_fork()
        context = get_context("fork" if is_forked else "spawn")
        self._executor = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=arguments)
        if is_forked:  # all at once, before there is a thread
            with _quiet_fork():
                self.submit(int)

    def submit(self, work: Callable[..., T], *arguments: Any) -> "Future[T]":
        """As of any executor; processes start here. A broken one raises where its result is asked for."""
        from concurrent.futures import BrokenExecutor, Future

        with signals_wait():
            try:
                return self._executor.submit(work, *arguments)
            except BrokenExecutor as error:
                lost: Future[T] = Future()
                lost.set_exception(error)
                return lost

    def close(self) -> None:
        """Wait for all that was begun."""
        self._executor.shutdown(wait=True)

    def end(self) -> None:
        """End the processes where they stand: a file that one reads may take it another minute."""
        processes = [*(self._executor._processes or {}).values()]  # noqa: SLF001 - nothing else has them
        self._executor.shutdown(wait=False, cancel_futures=True)
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
        pool = Pool(processes, set_up, files_at_once, place)
        try:
            yield pool
        except BaseException:
            pool.end()
            raise
        pool.close()


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
    _signals_come()  # else a pool of which one process was killed waits for ever for the others, which it tells to end
    threading.Thread(target=_end_with_parent, daemon=True).start()
    IS_PROGRAM.set(False)
    CORES_A_FILE.set(cores_for_a_file(files_at_once, None) if files_at_once else 1)
    if set_up:
        set_up()


def _end_with_parent() -> None:
    """No orphan: a process that is killed cannot tell those that it started."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# How many processes suit some files: those that save more time than their start takes, and that find memory.


CORES_A_FILE: ContextVar[int] = ContextVar("cores a file", default=1)
"""How many processes may work at one file that is read here. One unless the program says so: those who use the
library need not have a main module that can be imported again."""

MOST_BYTES = 2 << 30
"""What processes that work at one file take together, where nobody says how many; one alone takes what it must."""

ROOM_BYTES: ContextVar[int | None] = ContextVar("bytes for processes at one file", default=MOST_BYTES)
"""The same of those that work at one file here; `None` for what is free."""

SECONDS_A_FILE = 0.5
"""What every analysis takes for one rank, however short."""

SECONDS_A_MB = 0.04
"""What each megabyte of text takes on top."""

START_SECONDS, FORK_SECONDS = 1.5, 0.6
"""What it takes to start processes, and to fork this one; those that save less are not started."""

WORTH_A_FORK_S = 2.5
"""Of files that take longer there is enough to join, draw and write: what a fork changes in memory is copied first."""


def processes_for(files: Sequence[Path], jobs: int | None) -> int:
    """As many processes as asked for; else those that save more than their start takes, one for each core at most."""
    if jobs is not None:
        return max(1, min(jobs, len(files)))
    most_bytes = _LEAST_BYTES + _TIMES_TEXT * max(map(_text_bytes, files), default=0)
    processes = fitting(max(1, min(len(files), _cores())), most_bytes)
    saved_s = sum(map(_work_s, files)) * (1 - 1 / processes)
    return processes if saved_s > (FORK_SECONDS if can_fork() else START_SECONDS) else 1


def room_bytes(files: int, jobs: object) -> int | None:
    """What the processes may take that work at so many files; `None` for what is free, where the user says how many."""
    return None if isinstance(jobs, int) else files * MOST_BYTES


def processes_beside(files: Sequence[Path], jobs: object) -> int:
    """How many may do what follows the reading: one for each core where a fork saves more than it costs.

    And where they find room, each with its share of the Results' making, the rules and the page.
    """
    if not can_fork() or sum(map(_work_s, files)) <= WORTH_A_FORK_S:
        return 1
    each_bytes = min(_TIMES_TEXT_BESIDE * sum(map(_text_bytes, files)), MOST_BYTES)
    wanted = min(jobs, _cores()) if isinstance(jobs, int) else _cores()
    return fitting_beside(wanted, each_bytes, room_bytes(len(files), jobs))


def cores_for_a_file(files: int, jobs: int | None) -> int:
    """How many processes each of so many files that are read at once may have."""
    wanted = max(1, (_cores() if jobs is None else jobs) // max(1, files))
    return fitting_beside(wanted, _DECODING_BYTES, room_bytes(1, jobs))


def _work_s(path: Path) -> float:
    """About how long one file takes: enough to tell a moment from many."""
    return SECONDS_A_FILE + SECONDS_A_MB * _text_bytes(path) / 1e6


def _text_bytes(path: Path) -> int:
    """About how much text there is in it."""
    return _size_of(path) * (1 if path.suffix == ".json" else _TIMES_PACKED)


def _size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else (path,)))


_LEAST_BYTES, _TIMES_TEXT, _TIMES_PACKED = 128 << 20, 0.6, 10
"""Of a process whatever it reads; for each byte of text; and text for each byte of a packed file."""

_DECODING_BYTES = 64 << 20
"""Of a process that decodes pieces of a file: of no more than some at once."""

_TIMES_TEXT_BESIDE = 0.1
"""Of one that does a share of what follows, for each byte of text: what it sends is there twice for a moment."""


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


# What the C library does with memory that was freed.


def give_back_freed() -> None:
    """Give the system what was freed in between what is used: glibc keeps it, a third of what a large trace takes."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def hold_memory() -> None:
    """Have glibc keep what is freed for the next table: given back each time, it comes page by page, and zeroed."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        of_c = ctypes.CDLL(None)
        for parameter, size in _MALLOC.items():
            of_c.mallopt(parameter, size)


_MALLOC = {-3: 8 << 20, -1: 64 << 20}
"""By <malloc.h>'s number: pieces larger than that are mapped on their own, and what is free at the end is kept."""
