"""Which process does the work of each file: this one, others of this machine, or workers of a cluster."""

import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd
from msgspec import Struct

from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.errors import InputError
from traceanalyzer.forks import can_fork
from traceanalyzer.kinds.kernels import comm_kernel
from traceanalyzer.processes import (
    CORES_A_FILE,
    ROOM_BYTES,
    Pool,
    Sent,
    cores_for_a_file,
    hold_memory,
    processes_for,
    quiet_pool,
    room_bytes,
)
from traceanalyzer.scale.dask_cluster import Cluster, Gathering

T = TypeVar("T")

Jobs = int | Cluster | None
"""How many processes, `None` for as many as suit the files; or the cluster whose workers do it."""

Progress = Callable[[int, int], None]
"""Called with files done and files in all."""

MOST_AT_HAND = 24
"""Files that are done here while others would only start: each takes a tenth of a second, a process one to start."""

NO_MEMORY = "needs more memory than there is: give fewer --jobs, some --ranks, or a shorter capture"


def each(
    work: Callable[[TraceFile], T],
    captures: tuple[TraceFile, ...],
    jobs: Jobs,
    progress: Progress | None,
    lost: Callable[[TraceFile, str], T] | None = None,
    at_hand: Collection[Path] = (),
    gathering: Gathering[T] | None = None,
    meanwhile: Callable[[], object] = tuple,
) -> Iterator[T]:
    """What `work` gives for each file, in their order whoever does it, so that nothing depends on who is quicker.

    Files `at_hand` take a moment: unless there are many, this process does them, and starts no other for their sake.
    With `gathering` what several files gave comes as one, joined where it was made. `meanwhile` is done here while
    other processes of this machine are at it.
    """
    report = progress or (lambda _done, _all: None)
    if isinstance(jobs, Cluster):
        yield from jobs.each(_Task(work), captures, report, lost or _refused, gathering)
        return
    ROOM_BYTES.set(room_bytes(1, jobs))
    held = at_hand if len(at_hand) <= MOST_AT_HAND else ()
    away = [capture for capture in captures if capture.path not in held]
    processes = processes_for([capture.path for capture in away], jobs)
    task = _Bundle(work, None if gathering is None else gathering.joined)
    bundles = _bundles(captures, held, 1 if gathering is None else _files_of_a_bundle(len(away), processes))
    done = 0
    if processes == 1:
        CORES_A_FILE.set(cores_for_a_file(1, jobs))
        for bundle in bundles:
            yield task(bundle, partial(_one_more, report, done, len(captures)))
            done += len(bundle)
        return
    if can_fork():
        comm_kernel("")  # what names of kernels are held against is compiled here, once, and not in each fork
    with quiet_pool(processes, set_up_process, files_at_once=processes) as pool:
        futures = [None if bundle[0].path in held else _submitted(pool, task, bundle) for bundle in bundles]
        meanwhile()
        for bundle, future in zip(bundles, futures, strict=True):
            try:
                made = task(bundle) if future is None else future.result().received()
            except BrokenExecutor:  # the system ended a process: all that wait for one are lost with it
                made = task.joined([_alone(work, capture, lost or _refused) for capture in bundle])
            yield made
            done += len(bundle)
            report(done, len(captures))


MOST_OF_A_BUNDLE = 16
"""Files whose tables a process puts together before it hands them on."""

_BUNDLES_A_PROCESS = 4
"""At least, so that no process waits long for the last one."""


def _files_of_a_bundle(files: int, processes: int) -> int:
    if processes == 1:
        return MOST_OF_A_BUNDLE
    return max(1, min(MOST_OF_A_BUNDLE, files // (processes * _BUNDLES_A_PROCESS)))


def _bundles(captures: Sequence[TraceFile], held: Collection[Path], most: int) -> list[tuple[TraceFile, ...]]:
    """The files in their order, so many at once: either such as are at hand or others."""
    bundles: list[tuple[TraceFile, ...]] = []
    for capture in captures:
        last = bundles[-1] if bundles else ()
        if last and len(last) < most and (last[0].path in held) == (capture.path in held):
            bundles[-1] = (*last, capture)
        else:
            bundles.append((capture,))
    return bundles


class _Bundle(Struct, Generic[T], frozen=True):
    """The work of several files in one process; without a way to join them of one."""

    work: Callable[[TraceFile], T]
    join: Callable[[Sequence[T]], T] | None

    def __call__(self, bundle: Sequence[TraceFile], report: Callable[[int], None] = lambda _done: None) -> T:
        made = []
        for place, capture in enumerate(bundle, 1):
            made.append(self.work(capture))
            report(place)
        return self.joined(made)

    def joined(self, made: Sequence[T]) -> T:
        return made[0] if self.join is None or len(made) == 1 else self.join(made)


def _one_more(report: Progress, before: int, files: int, done: int) -> None:
    report(before + done, files)


def _submitted(pool: Pool, work: Callable[[Sequence[TraceFile]], T], bundle: Sequence[TraceFile]) -> Future[Sent[T]]:
    try:
        return pool.submit(Sent.by, work, bundle)
    except BrokenExecutor as error:
        broken: Future[Sent[T]] = Future()
        broken.set_exception(error)
        return broken


def _alone(work: Callable[[TraceFile], T], capture: TraceFile, lost: Callable[[TraceFile, str], T]) -> T:
    """What `work` gives in a process of its own; what ends that one too is given to `lost`."""
    try:
        with quiet_pool(1, set_up_process) as pool:
            return pool.submit(work, capture).result()
    except BrokenExecutor:
        return lost(capture, f"the system ended the process that read it: it probably {NO_MEMORY}")


class _Task(Struct, Generic[T], frozen=True):
    """The work as a worker of a cluster does it."""

    work: Callable[[TraceFile], T]

    def __call__(self, capture: TraceFile) -> T:
        set_up_process()
        return self.work(capture)


def _refused(capture: TraceFile, why: str) -> Any:
    raise InputError(f"{capture.place}: {why}")


def set_up_process() -> None:
    """Suit a process that does nothing else to many small tables; of no effect on any figure."""
    hold_memory()
    # Many small objects and no cycles: the collector at its usual pace takes a twentieth of the time.
    gc.set_threshold(300_000, 50, 50)
    # Column names are texts too: each look-up of one in Arrow's storage converts it, a third of a small rank's time.
    pd.set_option("mode.string_storage", "python")
