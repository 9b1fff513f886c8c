"""Which process does the work of each file, and how its tables come together."""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import reduce_rank
from traceanalyzer.analyses.rank_tables import RankTables
from traceanalyzer.analyses.replay.replay import let_go
from traceanalyzer.analyses.timeline import MOST_RANKS, most_unlike_first
from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.errors import InputError, TraceAnalyzerError
from traceanalyzer.failures import Failure
from traceanalyzer.files.unnamed import give_back_memory, laid_in
from traceanalyzer.forks import can_fork, later
from traceanalyzer.free_memory import fitting_beside
from traceanalyzer.kinds.kernels import comm_kernel
from traceanalyzer.loading import LoadOptions, kept_ranks
from traceanalyzer.loading.capture import read_capture
from traceanalyzer.model import RankMeta, RankTrace, Skipped
from traceanalyzer.model.schema import TABLES, printable
from traceanalyzer.processes import (
    CORES_A_FILE,
    ROOM_BYTES,
    cores_for_a_file,
    hold_memory,
    processes_for,
    quiet_pool,
    room_bytes,
)
from traceanalyzer.scale.dask_cluster import Cluster, Gathering, Thinning

# Which process does the work of each file: this one, others of this machine, or workers of a cluster.


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
        futures = [None if bundle[0].path in held else pool.submit(task, bundle) for bundle in bundles]
        meanwhile()
        for bundle, future in zip(bundles, futures, strict=True):
            try:
                made = task(bundle) if future is None else future.result()
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


# One file reduced to its ranks' small tables, in the process that reads it.


ESSENTIAL = frozenset({"ranks", "breakdown", "steps"})
"""A rank of which one of these cannot be computed is left out whole."""


class Done(Struct, frozen=True):
    """What a worker sends back for one file."""

    capture: TraceFile
    ranks: tuple[tuple[RankMeta, dict[str, pd.DataFrame]], ...]
    skipped: tuple[Skipped, ...]
    failures: tuple[Failure, ...]


def reduce_capture(
    capture: TraceFile,
    options: LoadOptions,
    names: tuple[str, ...],
    thresholds: Mapping[str, Any],
    *,
    is_guarded: bool,
) -> Done:
    """Read the file and make the small tables of its ranks; when guarded, what fails is noted and the rest is made."""
    skipped: list[Skipped] = []
    failures: list[Failure] = []
    place = kept_ranks.place_of(capture, options, names, thresholds)
    ranks = kept_ranks.kept(place, options.rules)
    if ranks:
        return Done(capture, tuple(ranks), (), ())
    name = printable(str(capture.place))
    any_large = False
    try:
        with laid_in(options.cache):
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
    return Done(capture, tuple(own for own in ranks if own[0].rank not in lost), tuple(skipped), tuple(failures))


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


# What the analyses need of the ranks of several files: pieces that are joined in a tree, in whatever process.


DRAWN = ("timeline", "host_events")
"""Tables with a row for each event that a page draws, of the GPU and of the host."""

APART = (*DRAWN, "counter_series", "replay")
"""Tables that stay one a rank: they are let go rank by rank, or put together in a way of their own."""


@dataclass(frozen=True, slots=True)
class RankSize:
    """What decides on a rank: time that it loses (idle or in exposed communication), operations drawn and replayed."""

    lost_ns: int
    drawn: int
    replayed: int


@dataclass(frozen=True, slots=True)
class GatheredRank:
    """A rank as a file has it, and those of its tables that stay apart."""

    capture: TraceFile
    meta: RankMeta
    size: RankSize
    apart: Mapping[str, pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Some files' ranks in the order of files.

    Attributes:
        ranks: who they are.
        tables: of each analysis the ranks' tables, by place in `ranks`.
        skipped: what of the files was left out.
        failures: what could not be computed.
    """

    ranks: tuple[GatheredRank, ...]
    tables: Mapping[str, RankTables]
    skipped: tuple[Skipped, ...]
    failures: tuple[Failure, ...]

    @classmethod
    def of(cls, done: Done) -> "Gathered":
        """One file's."""
        ranks = tuple(
            GatheredRank(done.capture, meta, _size_of(own), {name: own[name] for name in APART if name in own})
            for meta, own in done.ranks
        )
        names = dict.fromkeys(name for _, own in done.ranks for name in own if name not in APART)
        tables = {
            name: RankTables.of({place: own[name] for place, (_, own) in enumerate(done.ranks) if name in own})
            for name in names
        }
        return cls(ranks, tables, done.skipped, done.failures)

    @classmethod
    def joined(cls, parts: Sequence["Gathered"]) -> "Gathered":
        """The files of all parts, one part's after the other's."""
        before = [0, *accumulate(len(part.ranks) for part in parts)]
        names = dict.fromkeys(name for part in parts for name in part.tables)
        return cls(
            tuple(rank for part in parts for rank in part.ranks),
            {
                name: RankTables.joined(
                    [
                        part.tables[name].moved(by)
                        for part, by in zip(parts, before, strict=False)
                        if name in part.tables
                    ]
                )
                for name in names
            },
            tuple(one for part in parts for one in part.skipped),
            tuple(one for part in parts for one in part.failures),
        )

    def with_apart(self, apart: Sequence[Mapping[str, pd.DataFrame]]) -> "Gathered":
        """The same with these tables that stay apart, rank by rank."""
        return replace(self, ranks=tuple(replace(rank, apart=own) for rank, own in zip(self.ranks, apart, strict=True)))

    def by_analysis(self, numbers: Mapping[int, int]) -> dict[str, Mapping[int, pd.DataFrame]]:
        """Each analysis' tables by rank, of those places that are given one, in order of rank."""
        order = sorted(numbers, key=lambda place: numbers[place])
        found: dict[str, Mapping[int, pd.DataFrame]] = {}
        for name in APART:
            held = [place for place in order if name in self.ranks[place].apart]
            found |= {name: {numbers[place]: self.ranks[place].apart[name] for place in held}} if held else {}
        return found | {name: own.renumbered(numbers) for name, own in self.tables.items()}


def gather_capture(capture: TraceFile, **how: Any) -> Gathered:
    """The file's ranks; `how` is that of `reduce_capture`."""
    return Gathered.of(reduce_capture(capture, **how))


def nothing_of(capture: TraceFile, why: str) -> Gathered:
    """The file left out, and why."""
    return Gathered.of(without_ranks(capture, why))


def _size_of(tables: Mapping[str, pd.DataFrame]) -> RankSize:
    graph = tables.get("replay", ())
    replayed = int(graph["operations"].iloc[0]) if isinstance(graph, pd.DataFrame) and len(graph) else 0
    return RankSize(_lost_ns(tables), len(tables.get("timeline", ())), replayed)


def _lost_ns(tables: Mapping[str, pd.DataFrame]) -> int:
    """What the rank loses, idle or in exposed communication; 0 where that is not asked for."""
    if "breakdown" not in tables:
        return 0
    lost = tables["breakdown"]  # without columns where the rank has no GPU operation
    return 0 if lost.empty else int(lost[["idle_ns", "exposed_comm_ns"]].to_numpy().sum())


# What the tables of all ranks together may hold: of too many, what is shown or replayed least is let go.
#
# Which ranks keep what they draw depends on three numbers of each, so that a cluster's workers can hold
# the tables until
# that is known: only what is kept travels.


Place = tuple[int, int]
"""Number of a piece (a file, or several), and a rank's place in it."""


class Limits(Struct, frozen=True):
    """How many operations the timelines, and the graphs that are replayed, of all ranks together may have."""

    drawn: int
    replayed: int


class Kept(Struct, frozen=True):
    """Ranks that keep what their GPUs did, those that keep what their hosts did; and whether all keep their graphs."""

    drawn: frozenset[Place]
    hosts: frozenset[Place]
    has_graphs: bool


def sizes_of(piece: Gathered) -> tuple[RankSize, ...]:
    """Of each of its ranks."""
    return tuple(rank.size for rank in piece.ranks)


def kept_of(sizes: Mapping[int, Sequence[RankSize]], limits: Limits) -> Kept:
    """What a job keeps, by the sizes of each piece's ranks: the timelines of the ranks that are most unlike the others.

    One timeline at least, and the hosts of the first of them; and all graphs or, where they are more than are replayed,
    none.
    """
    every = _by_place(sizes)
    drawn = [place for place, size in every.items() if size.drawn]
    order = most_unlike_first({number: every[place].lost_ns for number, place in enumerate(drawn)})
    kept = _first_within([drawn[number] for number in order], every, limits.drawn)
    return Kept(frozenset(kept), frozenset(kept[:MOST_RANKS]), _has_graphs(every, limits))


def shortened(piece: Gathered, number: int, kept: Kept) -> Gathered:
    """The piece without what its ranks do not keep."""
    return piece.with_apart(
        [
            _without(
                rank.apart,
                is_drawn=(number, place) in kept.drawn,
                has_host=(number, place) in kept.hosts,
                has_graph=kept.has_graphs,
            )
            for place, rank in enumerate(piece.ranks)
        ]
    )


def thinning(limits: Limits) -> Thinning[Gathered]:
    """How the workers of a cluster make smaller what they hold: the same as `thinned` leaves."""

    def shares(sizes: Mapping[int, tuple[RankSize, ...]]) -> dict[int, Kept]:
        kept = kept_of(sizes, limits)
        drawn, hosts = _by_piece(kept.drawn), _by_piece(kept.hosts)
        return {number: Kept(drawn.get(number, _NONE), hosts.get(number, _NONE), kept.has_graphs) for number in sizes}

    return Thinning(sizes_of, shares, shortened)


_NONE: frozenset[Place] = frozenset()


def _by_piece(places: Iterable[Place]) -> dict[int, frozenset[Place]]:
    return {number: frozenset(own) for number, own in groupby(sorted(places), key=itemgetter(0))}


def thinned(pieces: Iterable[Gathered], limits: Limits) -> list[Gathered]:
    """The pieces as they come, with what they keep in the end; meanwhile little more is held than what may be kept.

    A row for every operation of a thousand ranks would fill the memory.
    """
    sizes: dict[int, tuple[RankSize, ...]] = {}
    held: list[Gathered] = []
    drawn = graphs = 0
    for number, piece in enumerate(pieces):
        sizes[number] = sizes_of(piece)
        held.append(piece)
        drawn += sum(size.drawn for size in sizes[number])
        graphs += sum(size.replayed for size in sizes[number])
        if drawn > _HELD_TIMES * limits.drawn or graphs > limits.replayed:
            possible = _possible(sizes, limits)
            held = [shortened(earlier, place, possible) for place, earlier in enumerate(held)]
            drawn = sum(sizes[file][place].drawn for file, place in possible.drawn)
            graphs = graphs if possible.has_graphs else 0
    kept = kept_of(sizes, limits)
    return [shortened(piece, number, kept) for number, piece in enumerate(held)]


_HELD_TIMES = 3
"""Times of what is drawn in the end that timelines may have meanwhile: two of them are what may still be kept."""


def _possible(sizes: Mapping[int, Sequence[RankSize]], limits: Limits) -> Kept:
    """What may still be kept whoever else comes: who is unlike the others loses most or least."""
    every = _by_place(sizes)
    most_first = sorted(every, key=lambda place: (-every[place].lost_ns, place))
    least_first = sorted(every, key=lambda place: (every[place].lost_ns, place))
    ends = [_first_within(order, every, limits.drawn) for order in (most_first, least_first)]
    drawn, hosts = (frozenset(place for end in ends for place in end[:most]) for most in (None, MOST_RANKS))
    return Kept(drawn, hosts, _has_graphs(every, limits))


def _by_place(sizes: Mapping[int, Sequence[RankSize]]) -> dict[Place, RankSize]:
    """The ranks that have something to draw or to replay, in the order of files."""
    return {
        (number, place): size
        for number, own in sorted(sizes.items())
        for place, size in enumerate(own)
        if size.drawn or size.replayed
    }


def _first_within(order: Sequence[Place], sizes: Mapping[Place, RankSize], most: int) -> list[Place]:
    """The first ranks that have timelines, of no more than `most` operations together; at least one."""
    drawn = [place for place in order if sizes[place].drawn]
    totals = accumulate(sizes[place].drawn for place in drawn)
    fitting = sum(1 for _ in takewhile(lambda total: total <= most, totals))
    return drawn[: max(1, fitting)]


def _has_graphs(sizes: Mapping[Place, RankSize], limits: Limits) -> bool:
    return sum(size.replayed for size in sizes.values()) <= limits.replayed


def _without(
    tables: Mapping[str, pd.DataFrame], *, is_drawn: bool, has_host: bool, has_graph: bool
) -> dict[str, pd.DataFrame]:
    lost = [name for name, is_kept in zip(DRAWN, (is_drawn, has_host), strict=True) if not is_kept and name in tables]
    gone = {name: pd.DataFrame() for name in lost}
    if not has_graph and len(tables.get("replay", ())):
        gone["replay"] = let_go(tables["replay"])
    return {**tables, **gone}
