"""Per-rank work on the workers of a Dask cluster, of this machine or of many."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from traceanalyzer.errors import InputError, needs_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from traceanalyzer.discovery.clustering import TraceFile

T = TypeVar("T")

LOCAL = "local"
"""In place of an address: workers on this machine, started and ended by the program."""


class Thinning(Struct, Generic[T], frozen=True):
    """How what the workers hold of all files is made smaller before it travels to this process.

    Attributes:
        size: of the rows of a file that which decides, small enough for one process to see of all files.
        kept: what is kept, from all files' sizes by number.
        shortened: the rows, with the number of its file, without what it does not keep.
    """

    size: Callable[[T], Any]
    kept: Callable[[Mapping[int, Any]], Any]
    shortened: Callable[[T, int, Any], T]


class Cluster:
    """A connected Dask cluster. Workers have to see the files under the same paths, or the files are at a URL."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def each(
        self,
        work: Callable[[TraceFile], T],
        captures: Sequence[TraceFile],
        report: Callable[[int, int], None],
        lost: Callable[[TraceFile, str], T],
        thinning: Thinning[T] | None = None,
    ) -> Iterator[T]:
        """What `work` gives for each file, in their order; with `thinning` workers make it smaller before it travels.

        What a dead worker had done or was doing is done again by the others. A file over which workers die again and
        again is given to `lost`, with a sentence.
        """
        count = _Count(len(captures), report)
        futures = [self._client.submit(work, capture, pure=False, retries=2) for capture in captures]
        for future in futures:
            future.add_done_callback(count.one_more)
        try:
            if thinning is not None:
                futures = self._thinned(self._with_lost(futures, captures, lost), thinning)
            for capture, future in zip(captures, futures, strict=True):
                yield self._result(future, capture, lost)
                future.release()
        finally:
            self._client.cancel(futures)

    def _result(self, future: Any, capture: TraceFile, lost: Callable[[TraceFile, str], Any]) -> Any:
        """What a task gave; of a file over which workers die what `lost` gives."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        try:
            return future.result()
        except KilledWorker:
            return lost(capture, "workers of the cluster died over it again and again: too large for them?")
        except FutureCancelledError as error:
            raise InputError(f"the cluster gave the work up: {error}") from error

    def _with_lost(
        self, futures: list[Any], captures: Sequence[TraceFile], lost: Callable[[TraceFile, str], Any]
    ) -> list[Any]:
        """The tasks once all are done; in place of each that failed one that holds what `lost` gives."""
        return [
            future if future.exception() is None  # which waits for it
            else self._client.submit(_same, self._result(future, capture, lost), pure=False)
            for capture, future in zip(captures, futures, strict=True)
        ]  # fmt: skip

    def _thinned(self, futures: list[Any], thinning: Thinning[T]) -> list[Any]:
        """Futures of what is left of each."""
        sizes = self._client.gather([self._client.submit(thinning.size, future, pure=False) for future in futures])
        kept = thinning.kept(dict(enumerate(sizes)))
        return [self._client.submit(thinning.shortened, future, number, kept, pure=False)
                for number, future in enumerate(futures)]  # fmt: skip


def _same(made: T) -> T:
    return made


class _Count:
    """Files that are done, in whatever order; told from the client's own thread."""

    def __init__(self, total: int, report: Callable[[int, int], None]) -> None:
        self.total, self.report, self.done = total, report, 0

    def one_more(self, _future: Any) -> None:
        self.done += 1
        self.report(min(self.done, self.total), self.total)


@contextmanager
def connected(address: str, workers: int | None = None, *, timeout_s: float = 15) -> Iterator[Cluster]:
    """The cluster at an address such as `tcp://host:8786`, or one on this machine (`local`) with so many workers.

    Raises:
        UsageError: Dask is not installed.
        InputError: nothing answers at the address.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise needs_extra("--scheduler needs Dask", "cluster") from error
    if address != LOCAL:
        try:
            client = Client(address, timeout=timeout_s, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"--scheduler {address}: no scheduler of Dask answers there ({error})") from error
        with client:
            yield Cluster(client)
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = workers or cores
    # Without an address Dask takes port 8787 for its routes, and warns where another cluster has it.
    local = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address="127.0.0.1:0",
                         scheduler_kwargs={"dashboard": False}, silence_logs=50)  # fmt: skip
    with local, Client(local, set_as_default=False) as client:
        yield Cluster(client)
