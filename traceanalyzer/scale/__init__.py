"""The per-rank work of a run, and how its small tables come together as Results."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from traceanalyzer.analyses import ANALYSES, Results, combine_tables, reduce_rank
from traceanalyzer.analyses.engine import RESULT_MAKERS, needs_of
from traceanalyzer.analyses.replay.replay import MOST_OPERATIONS as MOST_REPLAYED
from traceanalyzer.analyses.timeline import MOST_OPERATIONS, MOST_RANKS
from traceanalyzer.discovery import Found
from traceanalyzer.discovery.clustering import Run, TraceFile
from traceanalyzer.errors import Failure, warn
from traceanalyzer.loading import LoadOptions, claimed_rank, notes_of, read_capture, require_ranks, with_gpu_work
from traceanalyzer.model import RankMeta, RankTrace, Skipped
from traceanalyzer.model.tables import pandas_set_up
from traceanalyzer.scale.work import (
    DRAWN,
    Cluster,
    Done,
    Jobs,
    Limits,
    Progress,
    RankTables,
    Unpacked,
    each,
    is_kept,
    reduce_capture,
    set_up_process,
    thinned,
    without_ranks,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Jobs", "Progress", "Summary", "each_file", "set_up_process", "summarise", "visit", "with_timelines"]

Visitor = Callable[[RankTrace], None]
"""Called with each rank in the process that read it; must be picklable."""

Claims = Mapping[tuple[Path, int], int]
"""(file, rank as the file has it) → rank under which the run has it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Summary:
    """All Results of one run, what was left out, and what could not be computed: its Results are empty."""

    results: Results
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    claims: Claims
    failures: tuple[Failure, ...] = ()
    rest: Callable[[Sequence[Failure]], "Summary"] | None = field(default=None, compare=False)
    """Where only the first Results were asked for: makes the others too, when this and that could not be computed."""


@pandas_set_up()
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
    first: Callable[[], Collection[str]] = tuple,
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
        first: asked while others read: whose Results are made first, where it is guarded; `Summary.rest` makes the
            others.
        thresholds: keyword arguments of analyses, by parameter name.

    Raises:
        InputError: no rank could be read.
    """
    wanted = tuple(names)
    how: dict[str, Any] = {
        "options": options,
        "names": wanted,
        "thresholds": thresholds,
        "is_guarded": is_guarded,
        "is_one_of_many": len(run.captures) > 1,
    }
    work = partial(reduce_capture, **how)
    at_hand = {one.path for one in run.captures if is_kept(one, options, wanted, thresholds)}
    limits = Limits(most_operations, thresholds.get("most_replayed", MOST_REPLAYED))
    arriving = each(work, run.captures, jobs, progress, without_ranks, at_hand, first, limits)
    files = [*arriving] if isinstance(jobs, Cluster) else thinned(arriving, limits)  # a cluster's workers have done so
    skipped = [*found.skipped, *(one for file in files for one in file.skipped)]
    failures = [failure for file in files for failure in file.failures]
    ranks, claims = _claimed(files, skipped, failures)
    metas = {rank: meta for rank, (meta, _) in ranks.items()}
    require_ranks(metas, found, skipped)
    tables: dict[str, dict[int, pd.DataFrame | bytes]] = {}
    for rank in sorted(ranks):
        for name, table in ranks[rank][1].items():
            tables.setdefault(name, {})[rank] = table
    parts: dict[str, Mapping[int, pd.DataFrame]] = {name: Unpacked(own) for name, own in tables.items()}
    asked: dict[str, Any] = {} if options.ranks is None else {"wanted_ranks": options.ranks}
    combined: Callable[..., Results] = partial(combine_tables, parts, len(ranks), **thresholds, **asked)
    del files, ranks, tables  # the tables go one after the other, as their Results are made
    first_names = _with_needs(wanted, first()) if is_guarded else ()
    results = combined(first_names or wanted, failures if is_guarded else None)
    warn(failures)
    notes = notes_of(metas, options.ranks, names_missing="integrity" not in wanted)
    made = Summary(results, tuple(skipped), notes, claims, tuple(failures))
    return made if not first_names else replace(made, rest=partial(_whole, made, combined, wanted))


def _with_needs(wanted: Sequence[str], first: Collection[str]) -> tuple[str, ...]:
    """The analyses that are wanted first, and those of which they are made: none is made a second time."""
    needed = {*first}.union(*(needs_of(name, RESULT_MAKERS) for name in first))
    return tuple(name for name in wanted if name in needed)


def _whole(
    first: Summary, combined: Callable[..., Results], wanted: Sequence[str], failures: Sequence[Failure]
) -> Summary:
    """The summary with all Results; `failures` are those that are known by now."""
    noted = [*failures]
    results = combined(wanted, noted, made_before=first.results)
    warn(noted[len(failures) :])
    return replace(first, results=results, failures=tuple(noted), rest=None)


def _claimed(
    files: Iterable[Done], skipped: list[Skipped], failures: Sequence[Failure]
) -> tuple[dict[int, tuple[RankMeta, RankTables]], Claims]:
    """What is said of each rank of the run, and its tables; and where files have it.

    Ranks without GPU work, and those whose number another file has, are left out: `skipped` says so. Where none is left
    and something failed, that is the error.
    """
    ranks: dict[int, tuple[RankMeta, RankTables]] = {}
    metas: dict[int, RankMeta] = {}
    claims: dict[tuple[Path, int], int] = {}
    read = [(done.capture, meta, tables) for done in files for meta, tables in done.ranks]
    for capture, meta, tables in with_gpu_work(read, lambda one: one[1], skipped):
        rank = claimed_rank(meta, metas, capture, skipped)
        if rank is not None:
            ranks[rank], metas[rank] = (meta, tables), meta
            claims[capture.path, meta.rank] = rank
    if not ranks and failures:
        raise RuntimeError(failures[0].sentence)
    return ranks, claims


def each_file(run: Run, work: Callable[[TraceFile], T], *, jobs: Jobs = None) -> list[T]:
    """What `work`, which must be picklable, gives for each of the run's files, as they are done."""
    return list(each(work, run.captures, jobs, None))


def visit(run: Run, options: LoadOptions, claims: Claims, visitor: Visitor, *, jobs: Jobs = None) -> None:
    """Read the run's ranks again and show each to `visitor`, under the number that it has in the run."""
    work = partial(_of_ranks, options=options, claims=claims, made=visitor)
    for _ in each(work, run.captures, jobs, None):
        pass


MOST_READ_AGAIN = 16
"""Ranks whose files are read again for what they draw: of half a large job, some show how it is."""


def with_timelines(
    summary: Summary, run: Run, options: LoadOptions, ranks: Sequence[int], *, jobs: Jobs = None
) -> Summary:
    """The summary with what the first of these ranks draw: their files are read again where it let that go."""
    timeline, hosts = (summary.results[name].table for name in DRAWN)
    missing = set(ranks[:MOST_READ_AGAIN]) - set(timeline["rank"].unique())
    missing |= set(ranks[:MOST_RANKS]) - set(hosts["rank"].unique()) if len(hosts) else set()
    own = {claim: rank for claim, rank in summary.claims.items() if rank in missing}
    if not own or timeline.empty:
        return summary
    names = [name for name in DRAWN if name in summary.results]
    paths = {path for path, _ in own}
    wanted = structs.replace(run, captures=tuple(capture for capture in run.captures if capture.path in paths))
    work = partial(_of_ranks, options=options, claims=own, made=partial(reduce_rank, names=names))
    parts: dict[str, dict[int, pd.DataFrame]] = {
        name: dict(list(summary.results[name].table.groupby("rank"))) for name in names
    }
    for found in each(work, wanted.captures, jobs, None):
        for rank, tables in found.items():
            for name in names:
                parts[name][rank] = tables[name]
    made = {name: ANALYSES[name].across({rank: own[rank] for rank in sorted(own)}) for name, own in parts.items()}
    return replace(summary, results=summary.results | made)


def _of_ranks(capture: TraceFile, options: LoadOptions, claims: Claims, made: Callable[[RankTrace], T]) -> dict[int, T]:
    """What `made` gives for each of the file's ranks that the run has, under the number that it has there."""
    return {
        rank: made(trace.renumbered(rank, trace.meta.rank_source))
        for trace in read_capture(capture, options, [])
        if (rank := claims.get((capture.path, trace.rank))) is not None
    }
