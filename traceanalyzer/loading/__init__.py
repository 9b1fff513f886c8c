"""From files to ranks in memory: the library's `load`, and what a reader of the figures must know of each file."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from os import PathLike
from pathlib import Path
from typing import TypeVar

from traceanalyzer.cuda_graphs import captures_beside, has_replays, with_captured_operators, with_notes_beside
from traceanalyzer.discovery import BY_NAME, BY_REGEX, Found, discover, is_of_captures, of_files
from traceanalyzer.discovery.clustering import SAME_RUN_NS, Run, TraceFile
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.files.archives import JSON_END, SUFFIXES
from traceanalyzer.files.remote import named
from traceanalyzer.job.run_info import given_step_ns
from traceanalyzer.kinds import KindRules
from traceanalyzer.loading.store import through
from traceanalyzer.meaning.columns import chosen
from traceanalyzer.meaning.vocabulary import lacking, numbered
from traceanalyzer.meaning.vocabulary import named as listed_named
from traceanalyzer.model import RankMeta, RankTrace, Skipped, TraceSet
from traceanalyzer.model.schema import printable
from traceanalyzer.model.tables import pandas_set_up
from traceanalyzer.readers import FILE_ORDER, FORMATS, GUESSED, NODE_ORDER, RankHint, ranks_of
from traceanalyzer.selection import Selection, select
from traceanalyzer.validation import place_of, text_of, threshold

# What of a run is read.


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What of a run is read, and how names become kinds.

    Attributes:
        ranks: only these; `None` is all.
        selection: steps to look at.
        rules: kinds of names.
        follows_links: read what links in a folder name outside it.
        cache: folder in which large traces that were read are kept for the next time; `None` keeps none.
    """

    ranks: frozenset[int] | None = None
    selection: Selection = field(default_factory=Selection)
    rules: KindRules = field(default_factory=KindRules)
    follows_links: bool = False
    cache: Path | None = field(default=None, repr=False, compare=False)


def parse_ranks(text: str | None) -> frozenset[int] | None:
    """`0,2-3` as a set.

    Raises:
        UsageError: the text is something else.
    """
    return None if text is None else chosen(text, "--ranks")


# One file of a run: its ranks with their steps found.


def read_capture(capture: TraceFile, options: LoadOptions, skipped: list[Skipped]) -> Iterator[RankTrace]:
    """The wanted ranks of one file, steps found; what cannot be used is appended to `skipped`."""
    if options.ranks is not None and capture.header.ranks and not options.ranks & set(capture.header.ranks):
        return
    try:
        hint = capture.hint or RankHint(0, FILE_ORDER)
        # Members of archives and remote files lie in a folder of this process, and no other run finds them there.
        kept_in = options.cache if capture.place == capture.path else None
        ways = (hint, *((kind, rule.pattern, rule.flags) for kind, rule in options.rules.extra))
        with capture.whole() as path:
            for trace in through(kept_in, path, ways, ranks_of(path, hint, options.rules)):
                if options.ranks is None or trace.rank in options.ranks:
                    if options.rules.extra:
                        trace = replace(trace, meta=replace(trace.meta, kind_rules=options.rules))  # noqa: PLW2901
                    whole = _with_captured_graphs(trace, path, options.rules)
                    yield from _selected(whole, options.selection, skipped)
    except InputError as error:
        why = re.sub(r"^\S*" + re.escape(capture.path.name) + ": ", "", str(error))
        skipped.append(Skipped(printable(named(capture.place)), why))


def _with_captured_graphs(trace: RankTrace, path: Path, rules: KindRules) -> RankTrace:
    """With the operators of its replayed graphs, where a trace of their capture or their nodes' names lie beside it."""
    if not has_replays(trace):
        return trace
    trace = with_notes_beside(trace, path)
    for file in captures_beside(path):
        try:
            ranks = ranks_of(file, RankHint(trace.rank, FILE_ORDER), rules)
            same = next((other for other in ranks if other.rank == trace.rank), None)
        except InputError:
            continue
        trace = trace if same is None else with_captured_operators(trace, same)
    return trace


def _selected(trace: RankTrace, selection: Selection, skipped: list[Skipped]) -> Iterator[RankTrace]:
    """The rank with its steps; a rank without those that were asked for is left out, the others go on."""
    try:
        yield select(trace, selection)
    except UsageError as error:
        skipped.append(Skipped(f"rank {trace.rank}", str(error)))


# Which of the ranks that files hold are the run's, and under which number.


T = TypeVar("T")


def with_gpu_work(ranks: Sequence[T], meta_of: Callable[[T], RankMeta], skipped: list[Skipped]) -> list[T]:
    """The ranks with GPU work; all of them where none has any, for a report of the host.

    What has none beside others that do is named in `skipped`: a process that drives no GPU, or one whose GPU was not
    recorded.
    """
    held = [rank for rank in ranks if not meta_of(rank).is_host_only]
    if not held:
        return list(ranks)
    left_out = [meta_of(rank) for rank in ranks if meta_of(rank).is_host_only]
    skipped += [
        Skipped(
            ", ".join(meta.files),
            f"rank {meta.rank} has API calls but no kernels: its profiler did not record its GPU"
            if meta.has_api_calls
            else "has no GPU work, unlike other files of the run",
        )
        for meta in left_out
    ]
    return held


def claimed_rank(
    meta: RankMeta, taken: Mapping[int, RankMeta], capture: TraceFile, skipped: list[Skipped]
) -> int | None:
    """The number under which a rank is kept.

    A guessed number moves on to the next free one. A stated number that is taken already is refused: `None`,
    and the file is named in `skipped`, with the one that is read.
    """
    rank = meta.rank
    if rank not in taken:
        return rank
    if meta.rank_source in GUESSED:
        return next(number for number in count(rank) if number not in taken)
    read = printable(", ".join(taken[rank].files))
    why = f"claims rank {rank}, which another file of this run has already ({read}); pick one with --trace-file"
    if meta.rank_source in (BY_NAME, BY_REGEX):
        why += ", or let names tell each file's rank in the whole job (rank0, rank1, …, or --rank-regex on its path)"
    skipped.append(Skipped(printable(named(capture.place)), why))
    return None


def require_ranks(ranks: Collection[int], found: Found, skipped: list[Skipped]) -> None:
    """Raise `InputError` with the reasons when nothing is left."""
    if ranks:
        return
    known = sorted({rank for run in found.runs for capture in run.captures for rank in capture.ranks})
    # What is no trace at all was set aside before; a trace that could not be read comes after it.
    reasons = [one for one in skipped if one not in found.skipped] or ([] if known else skipped)
    if reasons:
        raise InputError(f"{reasons[-1].what}: {reasons[-1].why}")
    raise UsageError(f"none of the ranks that were asked for is here; this run has {numbered('rank', known)}")


# What a reader of the figures must know of the files, and what runs are called.


def notes_of(
    metas: Mapping[int, RankMeta], wanted: frozenset[int] | None = None, *, names_missing: bool = True
) -> tuple[str, ...]:
    """What a reader must know of the files: missing ranks, guessed numbers.

    Args:
        metas: the ranks that were read.
        wanted: those that were asked for; `None` is all. Ranks that nobody asked for are not missing.
        names_missing: whether to speak of missing ranks and of events left out; the integrity checks do it too.
    """
    notes = []
    size = max((meta.world_size for meta in metas.values() if meta.world_size), default=0)
    absent = (size - len(metas)) if wanted is None else len(wanted - set(metas))
    if absent > 0 and names_missing:
        shown = lacking(range(size) if wanted is None else wanted, metas)
        have = "has" if absent == 1 else "have"
        notes.append(f"{absent:,} of {size if wanted is None else len(wanted):,} ranks {have} no trace here: {shown}.")
    lost = {rank: meta.events_skipped for rank, meta in metas.items() if meta.events_skipped}
    if lost and names_missing:
        count = sum(lost.values())
        unread = f"{count:,} event{'' if count == 1 else 's'} of {numbered('rank', lost)} could not be read"
        notes.append(f"{unread}, or {'has a time' if count == 1 else 'have times'} that cannot be; left out.")
    if len(metas) > 1 and any(meta.rank_source in GUESSED for meta in metas.values()):
        notes.append(
            "Ranks are numbered by the order of files or GPUs: neither the traces nor their names say which is which."
        )
    if any(meta.rank_source == NODE_ORDER for meta in metas.values()):
        notes.append(
            "Ranks are counted through the folders of nodes, in their order: names tell the rank within a node, and "
            "process groups hold ranks of several nodes."
        )
    return tuple(notes)


def other_runs(found: Found, taken: Run | None = None) -> tuple[str, ...]:
    """Says which of several runs was taken (the newest unless another is given), and which the others are."""
    taken = taken or found.runs[-1]
    name = _names(found.runs)
    others = [name(run) for run in found.runs if run is not taken and not is_of_captures(run)]
    if not others:
        return ()
    what = "1 other run" if len(others) == 1 else f"{len(others)} other runs"
    here = f"{'the newest one, ' if taken is found.runs[-1] else ''}{name(taken)}"
    note = (
        f"The folder holds {what} ({listed_named(others)}); this is {here}. analyze-traces --select all analyzes each."
    )
    return (note, *_other_captures(found.runs, taken, name))


def refuse_several_runs(found: Found) -> None:
    """Refuse to choose a run for a gate: the one taken may pass for another.

    Raises:
        UsageError: there are several.
    """
    name = _names(found.runs)
    runs = [name(run) for run in found.runs if not is_of_captures(run)]
    if len(runs) > 1:
        raise UsageError(
            f"--fail-on: name one run, or add --select all: the folder holds {len(runs)} runs ({listed_named(runs)})"
        )


def _names(runs: Sequence[Run]) -> Callable[[Run], str]:
    """What each of the runs is called; with its beginning, where another one bears its name."""
    times = Counter(map(name_of, runs))
    return lambda run: name_of(run) if times[name_of(run)] == 1 else f"{name_of(run)} of {run.began}"


def _other_captures(runs: Sequence[Run], taken: Run, name: Callable[[Run], str]) -> Iterator[str]:
    """Of a job that was recorded several times: captures of ranks that the run lacks, or that may be of it instead.

    Runs of other folders are other jobs, and a number that only follows the files' order is no rank's. Files of one
    folder that tell other sizes of their world are taken for another job's.
    """
    others = [one for one in runs if one is not taken and one.label == taken.label and not is_of_captures(one)]
    own, size = _ranks_of(taken), _sizes(taken)
    sizes_of = {name(one): _sizes(one) for one in others if None not in _sizes(one) | size}
    if apart := [f"{other} ({_in_words(sizes)})" for other, sizes in sizes_of.items() if not sizes & size]:
        yield f"Taken for other jobs, as files of this run say that it has {_in_words(size)}: {listed_named(apart)}."
    held = {name(one): _ranks_of(one) for one in others if _sizes(one) == size}
    lacking = {other: ranks - own for other, ranks in held.items() if ranks - own}
    if own and lacking:
        where = listed_named([f"{other} ({numbered('rank', ranks)})" for other, ranks in lacking.items()])
        yield f"Captures of ranks that this run lacks are in {where}: --trace-file joins those that belong together."
    starts = [capture.start_ns for capture in taken.captures]
    again = {other: ranks & own for other, ranks in held.items() if ranks & own}
    if len(own) > 1 and again and max(starts) - min(starts) > SAME_RUN_NS:
        where = listed_named([f"{numbered('rank', ranks)} in {other}" for other, ranks in again.items()])
        yield (
            "Captures of this run begin more than a minute apart, so that which belong together is a guess: there are "
            f"others of {where}. --trace-file joins those that do."
        )


def _ranks_of(run: Run) -> set[int]:
    return {rank for capture in run.captures if not capture.is_numbered_by_order for rank in capture.ranks}


def _in_words(sizes: set[int | None]) -> str:
    return f"{' or '.join(map(str, sizes))} rank{'' if sizes == {1} else 's'}"


def _sizes(run: Run) -> set[int | None]:
    return {capture.header.world_size for capture in run.captures}


def name_of(run: Run) -> str:
    """What tells a run from others of the folder: the folder below it, else its only file, else when it began."""
    only = _stem(printable(run.captures[0].path.name)) if len(run.captures) == 1 else ""
    return run.label or only or run.began


def label_of(path: Path) -> str:
    """The name of a run: what follows `profile/`, else the folder's (or file's) own name."""
    parts = path.resolve().parts
    if "profile" in parts[:-1]:
        return printable("/".join(parts[len(parts) - parts[::-1].index("profile") :]))
    return _stem(printable(path.resolve().name)) or "traces"


def _stem(name: str) -> str:
    """A file's name without the end that tells its format."""
    return re.sub(rf"(?:\.pt\.trace)?{JSON_END}|(?:{_ENDS}|_pqtdir)$", "", name)


_ENDS = "|".join(map(re.escape, (*SUFFIXES, *(end for one in FORMATS.values() for end in one.suffixes))))


# From files to ranks in memory: the library's `load`.


__all__ = [
    "LoadOptions",
    "label_of",
    "load",
    "name_of",
    "notes_of",
    "other_runs",
    "parse_ranks",
    "read_capture",
    "refuse_several_runs",
]

Source = str | PathLike[str]

_TAKES = "load takes a folder of traces, a trace or a list of traces"


def load(
    source: Source | Sequence[Source],
    *,
    ranks: str | int | Sequence[int] | None = None,
    steps: str | int | Sequence[int] = "all",
    step_range: str | None = None,
    kind: str | Sequence[str] = (),
    rank_regex: str | None = None,
    follow_links: bool = False,
    unprofiled_step: float | None = None,
) -> TraceSet:
    """Read the newest run of a folder, or the given files, into memory.

    Args:
        source: a folder of traces, a trace, or several traces of one run.
        ranks: only these, as numbers or as text (`0,2-3`).
        steps: `all`, `complete`, `last`, numbers of steps, or `FIRST:LAST`.
        step_range: name or glob of the ranges that mark steps; guessed when absent.
        kind: one rule `KIND=REGEX` or several, which come before the built-in ones.
        rank_regex: finds the rank in the paths of files that do not say it, in its group.
        follow_links: read what links in the folder name outside it; else they are skipped.
        unprofiled_step: mean step without the profiler, ms: every analysis of these traces uses it.

    Raises:
        InputError: nothing there can be analysed.
        UsageError: an option makes no sense.
    """
    for name, text in {"rank_regex": rank_regex, "step_range": step_range}.items():
        text_of("" if text is None else text, name)
    step_ns = None
    if unprofiled_step is not None:
        step_ns = given_step_ns(threshold("unprofiled_step", unprofiled_step, float))
    if isinstance(source, str | PathLike):
        place = place_of(source, _TAKES)
        found = discover(place, rank_regex, follows_links=follow_links)
        label = label_of(place)
    else:
        paths = _paths(source)
        found, label = of_files(paths, rank_regex), label_of(paths[0].parent)
    chosen = None if ranks is None else _as_text(ranks)
    options = LoadOptions(parse_ranks(chosen), Selection(step_range, _as_text(steps)), _rules(kind))
    run = found.runs[-1]
    traces: dict[int, RankTrace] = {}
    skipped = list(found.skipped)
    with pandas_set_up():
        read = [(capture, trace) for capture in run.captures for trace in read_capture(capture, options, skipped)]
    for capture, trace in with_gpu_work(read, lambda pair: pair[1].meta, skipped):
        rank = claimed_rank(trace.meta, {own: one.meta for own, one in traces.items()}, capture, skipped)
        if rank is not None:
            traces[rank] = trace if rank == trace.rank else trace.renumbered(rank, trace.meta.rank_source)
    require_ranks(traces, found, skipped)
    ordered = tuple(traces[rank] for rank in sorted(traces))
    notes = (*other_runs(found), *notes_of({trace.rank: trace.meta for trace in ordered}, options.ranks))
    return TraceSet(label, ordered, tuple(skipped), notes, step_ns)


def _paths(source: object) -> list[Path]:
    """Several traces; what else a caller may have given is refused with what is meant."""
    named = list(source) if isinstance(source, Iterable) and _is_several(source) else [source]
    if not named:
        raise UsageError(f"{_TAKES}: this list is empty")
    return [place_of(place, _TAKES) for place in named]


def _rules(kind: str | Sequence[str]) -> KindRules:
    return KindRules.parse(tuple(text_of(rule, "kind") for rule in (kind if _is_several(kind) else (kind,))))


def _is_several(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | TraceSet)


def _as_text(numbers: str | int | Sequence[int]) -> str:
    """Ranks or steps as the command line writes them; the parser refuses what is neither."""
    if isinstance(numbers, Iterable) and _is_several(numbers):
        return ",".join(map(str, numbers))
    return str(numbers)
