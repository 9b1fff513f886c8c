"""Which processes run the per-rank work, and how their small tables come together as Results."""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from traceanalyzer.analyses import ANALYSES, Result, combine, reduce_rank
from traceanalyzer.analyses.replay.replay import MOST_OPERATIONS as MOST_REPLAYED
from traceanalyzer.analyses.replay.replay import let_go
from traceanalyzer.analyses.timeline.thinning import most_unlike_first
from traceanalyzer.analyses.timeline.timeline import MOST_OPERATIONS
from traceanalyzer.discovery import Found
from traceanalyzer.discovery.clustering import Capture, Run
from traceanalyzer.errors import InputError, TraceAnalyzerError
from traceanalyzer.failures import Failure, warn
from traceanalyzer.loading import (
    LoadOptions,
    claimed_rank,
    kept_ranks,
    notes_of,
    read_capture,
    require_ranks,
    with_gpu_work,
)
from traceanalyzer.model import RankMeta, RankTrace, Skipped
from traceanalyzer.model.schema import printable
from traceanalyzer.processes import CORES_A_FILE, Pool, cores_for_a_file, processes_for, quiet_pool
from traceanalyzer.scale.dask_cluster import Cluster

ESSENTIAL = frozenset({"ranks", "breakdown", "steps"})
"""A rank of which one of these cannot be computed is left out whole."""

Visitor = Callable[[RankTrace], None]
"""Called with each rank in the process that read it; must be picklable."""

Claims = Mapping[tuple[Path, int], int]
"""(file, rank as the file has it) → rank under which the run has it."""

T = TypeVar("T")

Jobs = int | Cluster | None
"""How many processes, `None` for as many as suit the files; or the cluster whose workers do it."""

Progress = Callable[[int, int], None]
"""Called with files done and files in all."""


@dataclass(frozen=True, slots=True)
class Summary:
    """All Results of one run, what was left out, and what could not be computed: its Results are empty."""

    results: dict[str, Result]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    claims: Claims
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class _Done:
    """What a worker sends back for one file."""

    capture: Capture
    ranks: tuple[tuple[RankMeta, dict[str, pd.DataFrame]], ...]
    skipped: tuple[Skipped, ...]
    failures: tuple[Failure, ...]


def summarise(
    found: Found,
    run: Run,
    options: LoadOptions,
    *,
    names: Iterable[str] = ANALYSES,
    jobs: Jobs = None,
    progress: Progress | None = None,
    most_operations: int = MOST_OPERATIONS,
    is_guarded: bool = False,
    **thresholds: Any,
) -> Summary:
    """Analyse a run, one rank's events in memory at a time in each process.

    Args:
        found: what discovery found, for what there is to say of other runs and skipped files.
        run: the run to analyse.
        options: what of it.
        names: analyses.
        jobs: processes, `None` for as many as there are files and cores when the input is large; or a cluster.
        progress: called as files are done.
        most_operations: of all ranks together that the timeline keeps, whole ranks at a time.
        is_guarded: whether an analysis that fails is noted in the summary, with an empty Result, and no error.
        thresholds: keyword arguments of analyses, by parameter name.

    Raises:
        InputError: no rank could be read.
    """
    wanted = tuple(names)
    work = partial(_reduce_capture, options=options, names=wanted, thresholds=thresholds, is_guarded=is_guarded)
    parts: dict[int, dict[str, pd.DataFrame]] = {}
    metas: dict[int, RankMeta] = {}
    claims: dict[tuple[Path, int], int] = {}
    skipped, failures = list(found.skipped), list[Failure]()
    files = _each(work, run.captures, jobs, progress, _without_ranks)
    replayed = thresholds.get("most_replayed", MOST_REPLAYED)
    ordered = list(_without_graphs(_thinned(files, most_operations), replayed))
    for done in ordered:
        skipped += done.skipped
        failures += done.failures
    read = [(done.capture, meta, tables) for done in ordered for meta, tables in done.ranks]
    for capture, meta, tables in with_gpu_work(read, lambda one: one[1], skipped):
        rank = claimed_rank(meta, parts, capture, skipped)
        if rank is not None:
            parts[rank], metas[rank] = tables, meta
            claims[capture.path, meta.rank] = rank
    if not parts and failures:
        raise RuntimeError(failures[0].sentence)
    require_ranks(parts, found, skipped)
    notes = notes_of(metas, options.ranks, names_missing=options.ranks is not None or "integrity" not in wanted)
    asked = {} if options.ranks is None else {"wanted_ranks": options.ranks}
    results = combine(parts, wanted, failures if is_guarded else None, **thresholds, **asked)
    warn(failures)
    return Summary(results, tuple(skipped), notes, claims, tuple(failures))


def each_file(run: Run, work: Callable[[Capture], T], *, jobs: Jobs = None) -> list[T]:
    """What `work`, which must be picklable, gives for each of the run's files, as they are done."""
    return list(_each(work, run.captures, jobs, None))


def visit(run: Run, options: LoadOptions, claims: Claims, visitor: Visitor, *, jobs: Jobs = None) -> None:
    """Read the run's ranks again and show each to `visitor`, under the number that it has in the run."""
    work = partial(_visit_capture, options=options, claims=claims, visitor=visitor)
    for _ in _each(work, run.captures, jobs, None):
        pass


def with_timelines(
    summary: Summary, run: Run, options: LoadOptions, ranks: Collection[int], *, jobs: Jobs = None
) -> Summary:
    """The summary with these ranks' operations in its timeline: their files are read again where it let them go."""
    timeline = summary.results["timeline"].table
    own = {claim: rank for claim, rank in summary.claims.items() if rank in set(ranks) - set(timeline["rank"])}
    if not own or timeline.empty:
        return summary
    paths = {path for path, _ in own}
    wanted = replace(run, captures=tuple(capture for capture in run.captures if capture.path in paths))
    work = partial(_timelines, options=options, claims=own)
    parts: dict[int, pd.DataFrame] = dict(list(timeline.groupby("rank")))
    for found in _each(work, wanted.captures, jobs, None):
        parts |= found
    made = ANALYSES["timeline"].across({rank: parts[rank] for rank in sorted(parts)})
    return replace(summary, results={**summary.results, "timeline": made})


def _timelines(capture: Capture, options: LoadOptions, claims: Claims) -> dict[int, pd.DataFrame]:
    return {
        claims[capture.path, trace.rank]: reduce_rank(trace, ["timeline"])["timeline"]
        for trace in read_capture(capture, options, [])
        if (capture.path, trace.rank) in claims
    }


def _thinned(done_files: Iterator[_Done], most: int) -> Iterator[_Done]:
    """The files as they come, with no more operations for the timeline than a report shows.

    A row for every operation of a thousand ranks would fill the memory: those of the ranks that are most like the
    others are let go.
    """
    held: dict[int, dict[str, pd.DataFrame]] = {}
    lost: dict[int, int] = {}
    place = count()
    for done in done_files:
        for _, tables in done.ranks:
            if len(tables.get("timeline", ())):
                number = next(place)
                held[number], lost[number] = tables, _lost_ns(tables)
        total = sum(len(tables["timeline"]) for tables in held.values())
        while total > most and len(held) > 1:
            least = most_unlike_first(lost)[-1]
            tables = held.pop(least)
            del lost[least]
            total -= len(tables["timeline"])
            tables["timeline"] = pd.DataFrame()
        yield done


def _without_graphs(done_files: Iterator[_Done], most: int) -> Iterator[_Done]:
    """The files as they come; once there are more operations than are replayed, no rank keeps its graph."""
    held: list[dict[str, pd.DataFrame]] = []
    total = 0
    for done in done_files:
        for _, tables in done.ranks:
            if len(tables.get("replay", ())):
                held.append(tables)
                total += int(tables["replay"]["operations"].iloc[0])
        if total > most:
            for tables in held:
                tables["replay"] = let_go(tables["replay"])
            held = []
        yield done


_NO_MEMORY = "needs more memory than there is: give fewer --jobs, some --ranks, or a shorter capture"


def _lost_ns(tables: Mapping[str, pd.DataFrame]) -> int:
    """What the rank loses, idle or in exposed communication; 0 where that is not asked for."""
    if "breakdown" not in tables:
        return 0
    return int(tables["breakdown"][["idle_ns", "exposed_comm_ns"]].to_numpy().sum())


def _reduce_capture(
    capture: Capture,
    options: LoadOptions,
    names: tuple[str, ...],
    thresholds: Mapping[str, Any],
    *,
    is_guarded: bool,
) -> _Done:
    skipped: list[Skipped] = []
    failures: list[Failure] = []
    place = kept_ranks.place_of(capture, options, names, thresholds)
    ranks = kept_ranks.kept(place, options.rules)
    if ranks:
        return _Done(capture, tuple(ranks), (), ())
    name = printable(str(capture.place))
    try:
        for trace in read_capture(capture, options, skipped):
            tables = reduce_rank(trace, names, failures if is_guarded else None, **thresholds)
            ranks += [(trace.meta, tables)]
        if not skipped and not failures:
            kept_ranks.keep(place, kept_ranks.place_of(capture, options, names, thresholds), ranks)
    except MemoryError:
        skipped.append(Skipped(name, _NO_MEMORY))
    except TraceAnalyzerError:
        raise
    except Exception as error:  # the other files may be good
        if not is_guarded:
            raise
        failures.append(Failure.of("reader", f"File {name}", error))
        skipped.append(Skipped(name, failures[-1].sentence))
    lost = {failure.rank: failure for failure in failures if failure.name in ESSENTIAL}
    skipped += [Skipped(f"rank {rank}", failure.sentence) for rank, failure in lost.items()]
    return _Done(capture, tuple(own for own in ranks if own[0].rank not in lost), tuple(skipped), tuple(failures))


def _visit_capture(capture: Capture, options: LoadOptions, claims: Claims, visitor: Visitor) -> None:
    for trace in read_capture(capture, options, []):
        rank = claims.get((capture.path, trace.rank))
        if rank is not None:
            visitor(trace.renumbered(rank, trace.meta.rank_source))


def _each(
    work: Callable[[Capture], T],
    captures: tuple[Capture, ...],
    jobs: Jobs,
    progress: Progress | None,
    lost: Callable[[Capture, str], T] | None = None,
) -> Iterator[T]:
    """What `work` gives for each file, in their order whoever does it, so that nothing depends on who is quicker."""
    report = progress or (lambda _done, _all: None)
    if isinstance(jobs, Cluster):
        yield from jobs.each(_Task(work), captures, report, lost or _refused)
        return
    processes = processes_for([capture.path for capture in captures], jobs)
    if processes == 1:
        CORES_A_FILE.set(cores_for_a_file(1, jobs))
        for number, capture in enumerate(captures, 1):
            yield work(capture)
            report(number, len(captures))
        return
    with quiet_pool(processes, set_up_process, files_at_once=processes) as pool:
        futures = [_submitted(pool, work, capture) for capture in captures]
        for number, (capture, future) in enumerate(zip(captures, futures, strict=True), 1):
            try:
                made = future.result()
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
        return lost(capture, f"the system ended the process that read it: it probably {_NO_MEMORY}")


@dataclass(frozen=True, slots=True)
class _Task(Generic[T]):
    """The work as a worker of a cluster does it."""

    work: Callable[[Capture], T]

    def __call__(self, capture: Capture) -> T:
        set_up_process()
        return self.work(capture)


def _refused(capture: Capture, why: str) -> Any:
    raise InputError(f"{capture.place}: {why}")


def _without_ranks(capture: Capture, why: str) -> _Done:
    return _Done(capture, (), (Skipped(printable(str(capture.place)), why),), ())


def set_up_process() -> None:
    """Suit a process that does nothing else to many small tables; of no effect on any figure."""
    # Many small objects and no cycles: the collector at its usual pace takes a twentieth of the time.
    gc.set_threshold(100_000, 50, 50)
    # Column names are texts too: each look-up of one in Arrow's storage converts it, a third of a small rank's time.
    pd.set_option("mode.string_storage", "python")
