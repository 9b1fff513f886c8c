"""From files to ranks in memory: the library's `load`, and one capture at a time for `scale`."""

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice, pairwise
from os import PathLike
from pathlib import Path
from typing import TypeVar

from traceanalyzer.cuda_graphs.captures import captures_beside, has_replays, with_captured_operators, with_notes_beside
from traceanalyzer.discovery import Found, discover, is_of_captures, of_files
from traceanalyzer.discovery.clustering import SAME_RUN_NS, Capture, Run
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.files.remote import named
from traceanalyzer.kinds import KindRules
from traceanalyzer.loading.cache import through
from traceanalyzer.model import RankMeta, RankTrace, Skipped, TraceSet
from traceanalyzer.model.schema import printable
from traceanalyzer.readers import FILE_ORDER, GUESSED, RankHint, Reader, reader_of
from traceanalyzer.selection import Selection, select


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


_MOST_NAMED = 16

_MOST_RANKS = 1_000_000

Source = str | PathLike[str]

T = TypeVar("T")


def load(
    source: Source | Sequence[Source],
    *,
    ranks: str | int | Sequence[int] | None = None,
    steps: str | int | Sequence[int] = "all",
    step_range: str | None = None,
    kind: str | Sequence[str] = (),
    rank_regex: str | None = None,
    follow_links: bool = False,
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

    Raises:
        InputError: nothing there can be analysed.
        UsageError: an option makes no sense.
    """
    if isinstance(source, str | PathLike):
        found = discover(Path(source), rank_regex, follows_links=follow_links)
        label = label_of(Path(source))
    else:
        paths = _paths(source)
        found, label = of_files(paths, rank_regex), label_of(paths[0].parent)
    rules = KindRules.parse((kind,) if isinstance(kind, str) else tuple(kind))
    chosen = None if ranks is None else _as_text(ranks)
    options = LoadOptions(parse_ranks(chosen), Selection(step_range, _as_text(steps)), rules)
    run = found.runs[-1]
    traces: dict[int, RankTrace] = {}
    skipped = list(found.skipped)
    read = [(capture, trace) for capture in run.captures for trace in read_capture(capture, options, skipped)]
    for capture, trace in with_gpu_work(read, lambda pair: pair[1].meta, skipped):
        rank = claimed_rank(trace.meta, traces, capture, skipped)
        if rank is not None:
            traces[rank] = trace if rank == trace.rank else trace.renumbered(rank, trace.meta.rank_source)
    require_ranks(traces, found, skipped)
    ordered = tuple(traces[rank] for rank in sorted(traces))
    notes = (*other_runs(found), *notes_of({trace.rank: trace.meta for trace in ordered}, options.ranks))
    return TraceSet(label, ordered, tuple(skipped), notes)


def _paths(source: object) -> list[Path]:
    """Several traces; what else a caller may have given is refused with what is meant."""
    named = list(source) if isinstance(source, Iterable) else [source]
    paths = [Path(place) for place in named if isinstance(place, str | PathLike)]
    if len(paths) < len(named) or not named:
        odd = next((place for place in named if not isinstance(place, str | PathLike)), None)
        what = f"not {odd!r:.80}" if named else "this list is empty"
        raise UsageError(f"load takes a folder of traces, a trace or a list of traces: {what}")
    return paths


def _as_text(numbers: str | int | Sequence[int]) -> str:
    """Ranks or steps as the command line writes them; the parser refuses what is neither."""
    if isinstance(numbers, Iterable) and not isinstance(numbers, str):
        return ",".join(map(str, numbers))
    return str(numbers)


def read_capture(capture: Capture, options: LoadOptions, skipped: list[Skipped]) -> Iterator[RankTrace]:
    """The wanted ranks of one file, steps found; what cannot be used is appended to `skipped`."""
    if options.ranks is not None and capture.header.ranks and not options.ranks & set(capture.header.ranks):
        return
    try:
        hint = capture.hint or RankHint(0, FILE_ORDER)
        # Members of archives and remote files lie in a folder of this process, and no other run finds them there.
        kept_in = options.cache if capture.place == capture.path else None
        ways = (hint, *((kind, rule.pattern, rule.flags) for kind, rule in options.rules.extra))
        with capture.whole() as path:
            for trace in through(kept_in, path, ways, _reader(path).read(path, hint, options.rules)):
                if options.ranks is None or trace.rank in options.ranks:
                    whole = _with_captured_graphs(_with_rules(trace, options.rules), path, options.rules)
                    yield from _selected(whole, options.selection, skipped)
    except InputError as error:
        why = re.sub(r"^\S*" + re.escape(capture.path.name) + ": ", "", str(error))
        skipped.append(Skipped(printable(named(capture.place)), why))


def _reader(path: Path) -> Reader:
    reader = reader_of(path)
    if reader is None:
        raise InputError(f"{path}: not there any more, not seen from here, or no trace")
    return reader


def _with_captured_graphs(trace: RankTrace, path: Path, rules: KindRules) -> RankTrace:
    """With the operators of its replayed graphs, where a trace of their capture or their nodes' names lie beside it."""
    if not has_replays(trace):
        return trace
    trace = with_notes_beside(trace, path)
    for file in captures_beside(path):
        reader = reader_of(file)
        try:
            ranks = reader.read(file, RankHint(trace.rank, FILE_ORDER), rules) if reader else ()
            same = next((other for other in ranks if other.rank == trace.rank), None)
        except InputError:
            continue
        trace = trace if same is None else with_captured_operators(trace, same)
    return trace


def _with_rules(trace: RankTrace, rules: KindRules) -> RankTrace:
    return replace(trace, meta=replace(trace.meta, kind_rules=rules)) if rules.extra else trace


def _selected(trace: RankTrace, selection: Selection, skipped: list[Skipped]) -> Iterator[RankTrace]:
    """The rank with its steps; a rank without those that were asked for is left out, the others go on."""
    try:
        yield select(trace, selection)
    except UsageError as error:
        skipped.append(Skipped(f"rank {trace.rank}", str(error)))


def with_gpu_work(ranks: Sequence[T], meta_of: Callable[[T], RankMeta], skipped: list[Skipped]) -> list[T]:
    """The ranks with GPU work; all of them where none has any, for a report of the host.

    What has none beside others that do, a process that drives no GPU, is named in `skipped`.
    """
    held = [rank for rank in ranks if not meta_of(rank).is_host_only]
    if not held:
        return list(ranks)
    left_out = [meta_of(rank) for rank in ranks if meta_of(rank).is_host_only]
    skipped += [Skipped(", ".join(meta.files), "has no GPU work, unlike other files of the run") for meta in left_out]
    return held


def claimed_rank(meta: RankMeta, taken: Container[int], capture: Capture, skipped: list[Skipped]) -> int | None:
    """The number under which a rank is kept.

    A guessed number moves on to the next free one. A stated number that is taken already is refused: `None`,
    and the file is named in `skipped`.
    """
    rank = meta.rank
    if rank not in taken:
        return rank
    if meta.rank_source in GUESSED:
        return next(number for number in count(rank) if number not in taken)
    why = f"claims rank {rank}, which another file of this run has already; pick one with --trace-file"
    skipped.append(Skipped(printable(named(capture.place)), why))
    return None


def require_ranks(ranks: Collection[int], found: Found, skipped: list[Skipped]) -> None:
    """Raise `InputError` with the reasons when nothing is left."""
    if ranks:
        return
    if skipped:
        raise InputError(f"{skipped[-1].what}: {skipped[-1].why}")
    known = sorted({rank for run in found.runs for capture in run.captures for rank in capture.ranks})
    raise UsageError(f"--ranks leaves nothing; this run has ranks {', '.join(map(str, known))}")


def notes_of(
    metas: Mapping[int, RankMeta], wanted: frozenset[int] | None = None, *, names_missing: bool = True
) -> tuple[str, ...]:
    """What a reader must know of the files: missing ranks, guessed numbers, captures of different times.

    Args:
        metas: the ranks that were read.
        wanted: those that were asked for; `None` is all. Ranks that nobody asked for are not missing.
        names_missing: whether to speak of missing ranks; the integrity checks do it too.
    """
    notes = []
    size = max((meta.world_size for meta in metas.values() if meta.world_size), default=0)
    absent = (size - len(metas)) if wanted is None else len(wanted - set(metas))
    if absent > 0 and names_missing:
        missing = (rank for rank in (range(size) if wanted is None else sorted(wanted)) if rank not in metas)
        shown = ", ".join(str(rank) for rank in islice(missing, _MOST_NAMED))
        more = f" and {absent - _MOST_NAMED:,} more" if absent > _MOST_NAMED else ""
        have = "has" if absent == 1 else "have"
        notes.append(
            f"{absent:,} of {size if wanted is None else len(wanted):,} ranks {have} no trace here: {shown}{more}."
        )
    if len(metas) > 1 and any(meta.rank_source in GUESSED for meta in metas.values()):
        notes.append(
            "Ranks are numbered by the order of files or GPUs: neither the traces nor their names say which is which."
        )
    apart = _apart(metas)
    if apart:
        notes.append(
            f"The captures of ranks {apart[0]} and {apart[1]} do not overlap in time: these may not be ranks of one "
            "job. Analyse each with --trace-file."
        )
    return tuple(notes)


def other_runs(found: Found, taken: Run | None = None) -> tuple[str, ...]:
    """Says which of several runs was taken (the newest unless another is given), and which the others are."""
    taken = taken or found.runs[-1]
    others = [name_of(run) for run in found.runs if run is not taken and not is_of_captures(run)]
    if not others:
        return ()
    what = "1 other run" if len(others) == 1 else f"{len(others)} other runs"
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    named = ", ".join(others[:_MOST_NAMED]) + more
    here = f"{'the newest one, ' if taken is found.runs[-1] else ''}{name_of(taken)}"
    return (f"The folder holds {what} ({named}); this is {here}. --select all analyses each.",)


def name_of(run: Run) -> str:
    """What tells a run from others of the folder: the folder below it, else its only file, else when it began."""
    only = _stem(printable(run.captures[0].path.name)) if len(run.captures) == 1 else ""
    return run.label or only or run.began


def _apart(metas: Mapping[int, RankMeta]) -> tuple[int, int] | None:
    """Two ranks whose captures do not overlap; if a world size is stated, by more than hosts' clocks may differ."""
    timed = sorted(
        (meta.capture_start_ns, meta.capture_end_ns, rank)
        for rank, meta in metas.items()
        if meta.capture_start_ns is not None and meta.capture_end_ns is not None
    )

    def tolerance_ns(*pair: int) -> int:
        return 0 if all(metas[rank].world_size is None for rank in pair) else SAME_RUN_NS

    return next(
        ((one[2], two[2]) for one, two in pairwise(timed) if two[0] > one[1] + tolerance_ns(one[2], two[2])), None
    )


def label_of(path: Path) -> str:
    """The name of a run: what follows `profile/`, else the folder's (or file's) own name."""
    parts = path.resolve().parts
    if "profile" in parts[:-1]:
        return printable("/".join(parts[len(parts) - parts[::-1].index("profile") :]))
    return _stem(printable(path.resolve().name)) or "traces"


def _stem(name: str) -> str:
    return re.sub(
        r"\.(?:pt\.trace\.)?json(?:\.(?:gz|zst|xz|bz2))?$|\.zip$|\.tgz$|\.tar(?:\.(?:gz|zst|xz|bz2))?$|\.sqlite$|\.db$|\.xplane\.pb$|\.nsys-rep$|_pqtdir$",
        "",
        name,
    )


def parse_ranks(text: str | None) -> frozenset[int] | None:
    """`0,2-3` as a set.

    Raises:
        UsageError: the text is something else.
    """
    if text is None:
        return None
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match:
            raise UsageError(f"--ranks {text!r}: write numbers and ranges such as 0,2-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise UsageError(f"--ranks {text!r}: {first}-{last} is reversed; write {last}-{first}")
        if last >= _MOST_RANKS:
            raise UsageError(f"--ranks {text!r}: ranks go up to {_MOST_RANKS - 1:,}")
        ranks.update(range(first, last + 1))
    return frozenset(ranks)
