"""Which process does the work of each file: this one, others of this machine, or workers of a cluster."""

import gc
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from traceanalyzer.discovery.clustering import Capture
from traceanalyzer.errors import InputError
from traceanalyzer.processes import CORES_A_FILE, Pool, cores_for_a_file, processes_for, quiet_pool
from traceanalyzer.scale.dask_cluster import Cluster, Thinning

T = TypeVar("T")

Jobs = int | Cluster | None
"""How many processes, `None` for as many as suit the files; or the cluster whose workers do it."""

Progress = Callable[[int, int], None]
"""Called with files done and files in all."""

MOST_AT_HAND = 24
"""Files that are done here while others would only start: each takes a tenth of a second, a process one to start."""

NO_MEMORY = "needs more memory than there is: give fewer --jobs, some --ranks, or a shorter capture"


def each(
    work: Callable[[Capture], T],
    captures: tuple[Capture, ...],
    jobs: Jobs,
    progress: Progress | None,
    lost: Callable[[Capture, str], T] | None = None,
    at_hand: Collection[Path] = (),
    thinning: Thinning[T] | None = None,
) -> Iterator[T]:
    """What `work` gives for each file, in their order whoever does it, so that nothing depends on who is quicker.

    Files `at_hand` take a moment: unless there are many, this process does them, and starts no other for their sake.
    What workers of a cluster hold is made smaller by `thinning` before it travels.
    """
    report = progress or (lambda _done, _all: None)
    if isinstance(jobs, Cluster):
        yield from jobs.each(_Task(work), captures, report, lost or _refused, thinning)
        return
    held = at_hand if len(at_hand) <= MOST_AT_HAND else ()
    away = [capture for capture in captures if capture.path not in held]
    processes = processes_for([capture.path for capture in away], jobs)
    if processes == 1:
        CORES_A_FILE.set(cores_for_a_file(1, jobs))
        for number, capture in enumerate(captures, 1):
            yield work(capture)
            report(number, len(captures))
        return
    with quiet_pool(processes, set_up_process, files_at_once=processes) as pool:
        futures = [None if capture.path in held else _submitted(pool, work, capture) for capture in captures]
        for number, (capture, future) in enumerate(zip(captures, futures, strict=True), 1):
            try:
                made = work(capture) if future is None else future.result()
            except BrokenExecutor:  # the system ended a process: all that wait for one are lost with it
                made = _alone(work, capture, lost or _refused)
            yield made
            report(number, len(captures))


def _submitted(pool: Pool, work: Callable[[Capture], T], capture: Capture) -> Future[T]:
    try:
        return pool.submit(work, capture)
    except BrokenExecutor as error:
        broken: Future[T] = Future()
        broken.set_exception(error)
        return broken


def _alone(work: Callable[[Capture], T], capture: Capture, lost: Callable[[Capture, str], T]) -> T:
    """What `work` gives in a process of its own; what ends that one too is given to `lost`."""
    try:
        with quiet_pool(1, set_up_process) as pool:
            return pool.submit(work, capture).result()
    except BrokenExecutor:
        return lost(capture, f"the system ended the process that read it: it probably {NO_MEMORY}")


@dataclass(frozen=True, slots=True)
class _Task(Generic[T]):
    """The work as a worker of a cluster does it."""

    work: Callable[[Capture], T]

    def __call__(self, capture: Capture) -> T:
        set_up_process()
        return self.work(capture)


def _refused(capture: Capture, why: str) -> Any:
    raise InputError(f"{capture.place}: {why}")


def set_up_process() -> None:
    """Suit a process that does nothing else to many small tables; of no effect on any figure."""
    # Many small objects and no cycles: the collector at its usual pace takes a twentieth of the time.
    gc.set_threshold(100_000, 50, 50)
    # Column names are texts too: each look-up of one in Arrow's storage converts it, a third of a small rank's time.
    pd.set_option("mode.string_storage", "python")
