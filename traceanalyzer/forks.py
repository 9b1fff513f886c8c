"""Work in a fork of this process: it has in memory all that this one has, and sends back what comes of it.

A fork takes some milliseconds, and nothing is copied until somebody changes it. A thread that holds a lock while its
process is forked never lets go of it in the fork, so that only the program itself forks, where Python has no other
thread; libraries' own threads rest then (Arrow's and OpenBLAS' know of forks). Elsewhere the work is done here.
"""

import gc
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any, BinaryIO, Generic, TypeVar

T = TypeVar("T")

IS_PROGRAM: ContextVar[bool] = ContextVar("is the program", default=False)
"""Whether this process is the program's own: in a user's, others may have reasons against forks."""

FREE: ContextVar[int] = ContextVar("free", default=1)
"""How many processes may share what this one is at, itself among them."""


def can_fork() -> bool:
    """Whether this process may be forked now."""
    # On a Mac system libraries do not outlive a fork; Windows has none.
    return IS_PROGRAM.get() and sys.platform == "linux" and threading.active_count() == 1


@contextmanager
def shared_among(processes: int) -> Iterator[None]:
    """What is made meanwhile may be shared among so many."""
    before = FREE.set(processes)
    try:
        yield
    finally:
        FREE.reset(before)


def aside(work: Callable[[], T], *, processes: int = 2) -> Callable[[], T]:
    """Begin the work in a fork of this process; what is returned waits for it, and gives or raises what came of it.

    Without a second process, where this one cannot be forked, and where the system ends the fork, it is done here.
    What is returned is called at least once: nobody else waits for the fork.
    """
    if processes < 2 or not can_fork():
        return _held(work)
    incoming, outgoing = os.pipe()
    with signals_wait(), quiet_fork():
        try:
            process = os.fork()
        except OSError:  # no memory, or no more processes
            os.close(incoming)
            os.close(outgoing)
            return _held(work)
        if process == 0:
            _work(work, outgoing)
    os.close(outgoing)
    return _Begun(work, process, os.fdopen(incoming, "rb"))


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
        os.write(into, b"".join(place.to_bytes(_PLACE_BYTES) for place in range(len(things))))
        os.close(into)

    def rest(self) -> Iterator[T]:
        """Those that are left."""
        while place := os.read(self._out, _PLACE_BYTES):
            yield self._things[int.from_bytes(place)]

    def close(self) -> None:
        """This process asks no more."""
        os.close(self._out)


_PLACE_BYTES = 2
"""A pipe holds 64 kB before anybody reads."""


@contextmanager
def quiet_fork() -> Iterator[None]:
    """Without Python's warning of threads, which counts libraries' own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


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


def signals_come() -> None:
    """In a process that was started while signals wait: they come again, and end it.

    But for Ctrl-C, which reaches every process of the terminal: the one that started this alone answers it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _ENDING[1:]:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [getattr(signal, name) for name in _ENDING])


def _held(work: Callable[[], T]) -> Callable[[], T]:
    made = work()
    return lambda: made


class _Begun(Generic[T]):
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
        signals_come()
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
