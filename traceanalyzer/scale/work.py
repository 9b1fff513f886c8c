"""Which process, or worker of a Dask cluster, does the work of each file, and how its tables come together."""

import gc
import os
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from traceanalyzer.analyses import reduce_rank
from traceanalyzer.analyses.replay.replay import let_go
from traceanalyzer.analyses.timeline import MOST_RANKS, most_unlike_first
from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.errors import Failure, InputError, TraceAnalyzerError, needs_extra
from traceanalyzer.execution import (
    CORES_A_FILE,
    ROOM_BYTES,
    can_fork,
    cores_for_a_file,
    fitting_beside,
    hold_memory,
    later,
    processes_for,
    quiet_pool,
    room_bytes,
)
from traceanalyzer.files.bounds import LARGE_BYTES, give_back_memory, spilling_to
from traceanalyzer.kinds import comm_kernel
from traceanalyzer.loading import LoadOptions, kept_ranks, read_capture
from traceanalyzer.model import RankMeta, RankTrace, Skipped
from traceanalyzer.model.schema import TABLES, printable
from traceanalyzer.model.tables import set_up_pandas

T = TypeVar("T")

LOCAL = "local"
"""In place of an address: workers on this machine, started and ended by the program."""


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
        limits: "Limits | None" = None,
    ) -> Iterator[T]:
        """What `work` gives for each file, in their order; workers hold it until it is asked for.

        With `limits`, for which `work` has to give `Done`, only what all files keep within them leaves the workers.

        What a dead worker had done or was doing is done again by the others. A file over which workers die again and
        again is given to `lost`, with a sentence.
        """
        done, total = count(1), len(captures)
        futures = [self._client.submit(work, capture, pure=False, retries=2) for capture in captures]
        for future in futures:
            future.add_done_callback(lambda _: report(min(next(done), total), total))  # from the client's own thread
        try:
            if limits is not None:
                futures = self._thinned(futures, captures, lost, limits)
            for capture, future in zip(captures, futures, strict=True):
                yield self._result(future, capture, lost)
                future.release()
        finally:
            self._client.cancel(futures)

    def _thinned(
        self,
        futures: Sequence[Any],
        captures: Sequence[TraceFile],
        lost: Callable[[TraceFile, str], Any],
        limits: "Limits",
    ) -> list[Any]:
        """Futures of what each file keeps, once all are read; a file over which workers died is what `lost` gives."""
        submit = partial(self._client.submit, pure=False)
        held = [
            submit(_same, self._result(future, capture, lost)) if future.exception() else future  # waits for it
            for capture, future in zip(captures, futures, strict=True)
        ]
        sizes = self._client.gather([submit(sizes_of, future, number) for number, future in enumerate(held)])
        kept = kept_of([size for own in sizes for size in own], limits)
        return [submit(_shortened, future, number, kept) for number, future in enumerate(held)]

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


def _same(made: T) -> T:
    return made


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


# Which process does the work of each file: this one, others of this machine, or workers of a cluster.


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
    meanwhile: Callable[[], object] = tuple,
    limits: "Limits | None" = None,
) -> Iterator[T]:
    """What `work` gives for each file, in their order whoever does it, so that nothing depends on who is quicker.

    Files `at_hand` take a moment: unless there are many, this process does them, and starts no other for their sake.
    `meanwhile` is done here while other processes of this machine are at it. Workers of a cluster keep within `limits`.
    """
    report = progress or (lambda _done, _all: None)
    lost = lost or _refused
    if isinstance(jobs, Cluster):
        yield from jobs.each(partial(_on_worker, work), captures, report, lost, limits)
        return
    ROOM_BYTES.set(room_bytes(1, jobs))
    held = at_hand if len(at_hand) <= MOST_AT_HAND else ()
    processes = processes_for([capture.path for capture in captures if capture.path not in held], jobs)
    if processes == 1:
        CORES_A_FILE.set(cores_for_a_file(1, jobs))
        for done, capture in enumerate(captures, 1):
            yield work(capture)
            report(done, len(captures))
        return
    if can_fork():
        comm_kernel("")  # what names of kernels are held against is compiled here, once, and not in each fork
    with quiet_pool(processes, set_up_process, files_at_once=processes) as pool:
        futures = [None if capture.path in held else pool.submit(work, capture) for capture in captures]
        meanwhile()
        for done, (capture, future) in enumerate(zip(captures, futures, strict=True), 1):
            try:
                yield work(capture) if future is None else future.result()
            except BrokenExecutor:  # the system ended a process: all that wait for one are lost with it
                yield _alone(work, capture, lost)
            report(done, len(captures))


def _alone(work: Callable[[TraceFile], T], capture: TraceFile, lost: Callable[[TraceFile, str], T]) -> T:
    """What `work` gives in a process of its own; what ends that one too is given to `lost`."""
    try:
        with quiet_pool(1, set_up_process) as pool:
            return pool.submit(work, capture).result()
    except BrokenExecutor:
        return lost(capture, f"the system ended the process that read it: it probably {NO_MEMORY}")


def _on_worker(work: Callable[[TraceFile], T], capture: TraceFile) -> T:
    set_up_process()
    return work(capture)


def _refused(capture: TraceFile, why: str) -> Any:
    raise InputError(f"{capture.place}: {why}")


def set_up_process() -> None:
    """Suit a process that does nothing else to many small tables; of no effect on any figure."""
    hold_memory()
    # Many small objects and no cycles: the collector at its usual pace takes a twentieth of the time.
    gc.set_threshold(300_000, 50, 50)
    set_up_pandas()  # column names are texts too: looked up in Arrow's storage they take a third of a small rank's time


# One file reduced to its ranks' small tables, in the process that reads it.


ESSENTIAL = frozenset({"ranks", "breakdown", "steps"})
"""A rank of which one of these cannot be computed is left out whole."""


RankTables = Mapping[str, "pd.DataFrame | bytes"]
"""A rank's tables by analysis; small ones pickled, which takes a tenth of the memory: see `Unpacked`."""


class Done(Struct, frozen=True):
    """What a worker sends back for one file."""

    capture: TraceFile
    ranks: tuple[tuple[RankMeta, RankTables], ...]
    skipped: tuple[Skipped, ...]
    failures: tuple[Failure, ...]


def reduce_capture(
    capture: TraceFile,
    options: LoadOptions,
    names: tuple[str, ...],
    thresholds: Mapping[str, Any],
    *,
    is_guarded: bool,
    is_one_of_many: bool = False,
) -> Done:
    """Read the file and make the small tables of its ranks; when guarded, what fails is noted and the rest is made."""
    skipped: list[Skipped] = []
    failures: list[Failure] = []
    place = kept_ranks.place_of(capture, options, names, thresholds)
    ranks = kept_ranks.kept(place, options.rules)
    pack = _packed if is_one_of_many else dict
    if ranks:
        return Done(capture, tuple((meta, pack(tables)) for meta, tables in ranks), (), ())
    name = printable(str(capture.place))
    any_large = False
    try:
        with spilling_to(options.cache):
            for trace in read_capture(capture, options, skipped):
                is_large = trace.is_large
                if is_large:
                    give_back_memory()
                processes = fitting_beside(CORES_A_FILE.get(), _bytes_of(trace), ROOM_BYTES.get()) if is_large else 1
                tables = reduce_rank(trace, names, failures if is_guarded else None, processes=processes, **thresholds)
                ranks += [(trace.meta, tables)]
                del trace
                any_large |= is_large
        if any_large:  # only now has the reader let go of the last one
            give_back_memory()
        if place and not skipped and not failures:
            again = kept_ranks.place_of(capture, options, names, thresholds)
            later(partial(kept_ranks.keep, place, again, ranks), processes=CORES_A_FILE.get())
    except MemoryError:
        skipped.append(Skipped(name, NO_MEMORY))
    except TraceAnalyzerError:
        raise
    except Exception as error:  # the other files may be good
        if not is_guarded:
            raise
        failures.append(Failure.of("reader", f"File {name}", error))
        skipped.append(Skipped(name, failures[-1].sentence))
    lost = {failure.rank: failure for failure in failures if failure.name in ESSENTIAL}
    skipped += [Skipped(f"rank {rank}", failure.sentence) for rank, failure in lost.items()]
    held = tuple((meta, pack(tables)) for meta, tables in ranks if meta.rank not in lost)
    return Done(capture, held, tuple(skipped), tuple(failures))


def _packed(tables: RankTables) -> RankTables:
    return {
        name: pickle.dumps(table, pickle.HIGHEST_PROTOCOL) if name not in _UNPACKED and _is_small(table) else table
        for name, table in tables.items()
    }


def _is_small(table: "pd.DataFrame | bytes") -> bool:
    """Whether it is in memory anyway: columns of large tables lie in files."""
    return isinstance(table, pd.DataFrame) and 8 * table.size <= LARGE_BYTES


class Unpacked(Mapping[int, pd.DataFrame]):
    """An analysis' tables by rank, unpacked as they are asked for."""

    def __init__(self, tables: Mapping[int, "pd.DataFrame | bytes"]) -> None:
        self._tables = tables

    def __getitem__(self, rank: int) -> pd.DataFrame:
        table = self._tables[rank]
        return pickle.loads(table) if isinstance(table, bytes) else table  # noqa: S301 - from a process of this run

    def __iter__(self) -> Iterator[int]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def _bytes_of(trace: RankTrace) -> float:
    """What a process takes that makes a share of its analyses: half of its tables, whose large columns lie in files."""
    return _LEAST_BYTES + _TIMES_TABLES * sum(int(trace.table(name).memory_usage().sum()) for name in TABLES)


_LEAST_BYTES, _TIMES_TABLES = 64 << 20, 0.55
"""Of a trace of 3.2 GB whose tables have 386 MB it took 275 MB, of 10 GB and 1.2 GB 600 MB."""


def is_kept(capture: TraceFile, options: LoadOptions, names: tuple[str, ...], thresholds: Mapping[str, Any]) -> bool:
    """Whether what the analyses made of the file's ranks lies in the cache: there is nothing to read or analyse."""
    place = kept_ranks.place_of(capture, options, names, thresholds)
    return place is not None and place.is_dir()


def without_ranks(capture: TraceFile, why: str) -> Done:
    """The file left out, and why."""
    return Done(capture, (), (Skipped(printable(str(capture.place)), why),), ())


# What the tables of all ranks together may hold: of too many, what is shown or replayed least is let go.


DRAWN = ("timeline", "host_events")
"""Tables with a row for each event that a page draws, of the GPU and of the host."""

_UNPACKED = (*DRAWN, "replay", "breakdown")
"""What is let go rank by rank, and what decides on that."""

Place = tuple[int, int]
"""Number of a file, and a rank's place in it."""


class RankSize(Struct, frozen=True):
    """What decides on a rank: time that it loses (idle or in exposed communication), operations drawn and replayed."""

    place: Place
    lost_ns: int
    drawn: int
    replayed: int


_NO_TABLE = pd.DataFrame()


class Limits(Struct, frozen=True):
    """How many operations the timelines, and the graphs that are replayed, of all ranks together may have."""

    drawn: int
    replayed: int


class Kept(Struct, frozen=True):
    """Ranks that keep what their GPUs did, those that keep what their hosts did; and whether all keep their graphs."""

    drawn: frozenset[Place]
    hosts: frozenset[Place]
    has_graphs: bool


def sizes_of(done: Done, number: int) -> list[RankSize]:
    """Of each of the ranks of the file of that number; 0 for what was not asked for."""
    sizes = []
    for at, (_, own) in enumerate(done.ranks):
        tables: Mapping[str, Any] = own
        lost, graph, drawn = (tables.get(name, _NO_TABLE) for name in ("breakdown", "replay", "timeline"))
        lost_ns = 0 if lost.empty else int(lost[["idle_ns", "exposed_comm_ns"]].to_numpy().sum())
        replayed = 0 if graph.empty else int(graph["operations"].iloc[0])
        sizes.append(RankSize((number, at), lost_ns, len(drawn), replayed))
    return sizes


def kept_of(sizes: Sequence[RankSize], limits: Limits, *, is_last: bool = True) -> Kept:
    """What a job keeps: the timelines of the ranks that are most unlike the others, and the hosts of the first of them.

    One timeline at least; and all graphs or, where they are more than are replayed, none. Before the last file what may
    still be kept whoever else comes: who is unlike the others loses most or least.
    """
    drawn = [size for size in sizes if size.drawn]
    if is_last:
        unlike = most_unlike_first({number: size.lost_ns for number, size in enumerate(drawn)})
        orders = [[drawn[number] for number in unlike]]
    else:
        orders = [sorted(drawn, key=lambda size: (sign * size.lost_ns, size.place)) for sign in (-1, 1)]
    ends = [_first_within(order, limits.drawn) for order in orders]
    gpus, hosts = (frozenset(place for end in ends for place in end[:most]) for most in (None, MOST_RANKS))
    return Kept(gpus, hosts, sum(size.replayed for size in sizes) <= limits.replayed)


def _first_within(order: Sequence[RankSize], most: int) -> list[Place]:
    """The first of these ranks, of no more than `most` operations together; at least one."""
    totals = accumulate(size.drawn for size in order)
    fitting = sum(1 for _ in takewhile(lambda total: total <= most, totals))
    return [size.place for size in order[: max(1, fitting)]]


def _shortened(done: Done, number: int, kept: Kept) -> Done:
    """The file's tables without what its ranks do not keep."""
    ranks = []
    for at, (meta, own) in enumerate(done.ranks):
        tables: Mapping[str, Any] = own
        keeps = zip(DRAWN, (kept.drawn, kept.hosts), strict=True)
        gone = {name: _NO_TABLE for name, places in keeps if name in tables and (number, at) not in places}
        if not kept.has_graphs and len(tables.get("replay", ())):
            gone["replay"] = let_go(tables["replay"])
        ranks.append((meta, {**tables, **gone}))
    return replace(done, ranks=tuple(ranks))


def thinned(files: Iterable[Done], limits: Limits) -> list[Done]:
    """The files as they come, with what they keep in the end; meanwhile memory has little more than what may be kept.

    A row for every operation of a thousand ranks would fill the memory.
    """
    sizes: list[RankSize] = []
    held: list[Done] = []
    drawn = graphs = 0
    for number, done in enumerate(files):
        own = sizes_of(done, number)
        sizes += own
        held.append(done)
        drawn += sum(size.drawn for size in own)
        graphs += sum(size.replayed for size in own)
        if drawn > _HELD_TIMES * limits.drawn or graphs > limits.replayed:
            possible = kept_of(sizes, limits, is_last=False)
            held = [_shortened(earlier, place, possible) for place, earlier in enumerate(held)]
            drawn = sum(size.drawn for size in sizes if size.place in possible.drawn)
            graphs = graphs if possible.has_graphs else 0
    kept = kept_of(sizes, limits)
    return [_shortened(done, number, kept) for number, done in enumerate(held)]


_HELD_TIMES = 3
"""Times of what is drawn in the end that timelines may have meanwhile: two of them are what may still be kept."""
