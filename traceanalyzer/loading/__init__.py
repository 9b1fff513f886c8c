"""From files to ranks in memory: the library's `load`."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from traceanalyzer.discovery import discover, of_files
from traceanalyzer.errors import UsageError
from traceanalyzer.job.run_info import given_step_ns
from traceanalyzer.kinds import KindRules
from traceanalyzer.loading.capture import (
    LoadOptions,
    claimed_rank,
    label_of,
    name_of,
    notes_of,
    other_runs,
    parse_ranks,
    read_capture,
    refuse_several_runs,
    require_ranks,
    with_gpu_work,
)
from traceanalyzer.model import RankTrace, TraceSet
from traceanalyzer.model.tables import pandas_set_up
from traceanalyzer.selection import Selection
from traceanalyzer.validation import place_of, text_of, threshold

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
