"""What a reader of the figures must know of the files, and what runs are called."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from traceanalyzer.discovery import Found, is_of_captures
from traceanalyzer.discovery.clustering import SAME_RUN_NS, Run
from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.listed import lacking, named, numbered
from traceanalyzer.model import RankMeta
from traceanalyzer.model.schema import printable
from traceanalyzer.readers import GUESSED, NODE_ORDER

_MOST_NAMED = 16


def notes_of(
    metas: Mapping[int, RankMeta], wanted: frozenset[int] | None = None, *, names_missing: bool = True
) -> tuple[str, ...]:
    """What a reader must know of the files: missing ranks, guessed numbers, captures of different times.

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
    apart = _apart(metas)
    if apart:
        is_whole = {meta.world_size for meta in metas.values()} == {len(metas)}
        why = (
            "their hosts' clocks differ, or they are of several captures; whether their calls match is checked."
            if is_whole
            else "these may not be ranks of one job. Analyse each with --trace-file."
        )
        notes.append(f"The captures of ranks {apart[0]} and {apart[1]} do not overlap in time: {why}")
    return tuple(notes)


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


def other_runs(found: Found, taken: Run | None = None) -> tuple[str, ...]:
    """Says which of several runs was taken (the newest unless another is given), and which the others are."""
    taken = taken or found.runs[-1]
    name = _names(found.runs)
    others = [name(run) for run in found.runs if run is not taken and not is_of_captures(run)]
    if not others:
        return ()
    what = "1 other run" if len(others) == 1 else f"{len(others)} other runs"
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    which = ", ".join(others[:_MOST_NAMED]) + more
    here = f"{'the newest one, ' if taken is found.runs[-1] else ''}{name(taken)}"
    said = f"The folder holds {what} ({which}); this is {here}. analyze-traces --select all analyses each."
    return (said, *_other_captures(found.runs, taken, name))


def refuse_several_runs(found: Found) -> None:
    """Refuse to choose a run for a gate: the one taken may pass for another.

    Raises:
        UsageError: there are several.
    """
    name = _names(found.runs)
    runs = [name(run) for run in found.runs if not is_of_captures(run)]
    if len(runs) > 1:
        raise UsageError(
            f"--fail-on: name one run, or add --select all: the folder holds {len(runs)} runs "
            f"({', '.join(runs[:_MOST_NAMED])}{', …' if len(runs) > _MOST_NAMED else ''})"
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
    told = {name(one): _sizes(one) for one in others if None not in _sizes(one) | size}
    if apart := [f"{other} ({_in_words(sizes)})" for other, sizes in told.items() if not sizes & size]:
        yield f"Taken for other jobs, as files of this run say that it has {_in_words(size)}: {named(apart)}."
    held = {name(one): _ranks_of(one) for one in others if _sizes(one) == size}
    lacking = {other: ranks - own for other, ranks in held.items() if ranks - own}
    if own and lacking:
        where = named([f"{other} ({numbered('rank', ranks)})" for other, ranks in lacking.items()])
        yield f"Captures of ranks that this run lacks are in {where}: --trace-file joins those that belong together."
    starts = [capture.start_ns for capture in taken.captures]
    again = {other: ranks & own for other, ranks in held.items() if ranks & own}
    if len(own) > 1 and again and max(starts) - min(starts) > SAME_RUN_NS:
        where = named([f"{numbered('rank', ranks)} in {other}" for other, ranks in again.items()])
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
    return re.sub(
        r"\.(?:pt\.trace\.)?json(?:\.(?:gz|zst|xz|bz2))?$|\.zip$|\.tgz$|\.tar(?:\.(?:gz|zst|xz|bz2))?$|\.sqlite$|\.db$|\.xplane\.pb$|\.nsys-rep$|_pqtdir$",
        "",
        name,
    )
