"""Where the sides of a comparison come from."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Results, run
from traceanalyzer.diff.captures import (
    Capture,
    Side,
    StoredBaseline,
    StoredSummary,
    converted,
    is_of_steps,
    of_results,
    of_rows,
    of_stored,
    shared_steps,
    to_json,
    world_size,
)  # fmt: skip
from traceanalyzer.discovery import Found, discover, of_files
from traceanalyzer.discovery.clustering import Run
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.files.whole import whole_file
from traceanalyzer.job import run_info
from traceanalyzer.loading import LoadOptions, label_of, other_runs, refuse_several_runs
from traceanalyzer.model import Skipped, TraceSet
from traceanalyzer.scale import summarise
from traceanalyzer.selection import Selection, with_steps

# Which ranks runs of one size are compared on, where a run lacks the traces of some.


def with_same_ranks(sides: Sequence[Side], read_again: Callable[[int, frozenset[int]], Side]) -> list[Side]:
    """The sides, each of the ranks that all have: a mean over two ranks is none over one, nor is a wait for a peer.

    Jobs of other sizes, and those that share no rank, stay as they are.

    Args:
        sides: as they were read.
        read_again: the side at a place, of these ranks; what was stored is cut to them where it has a row for each.
    """
    common = _shared(sides)
    if common is None:
        return [*sides]
    every = frozenset[int]().union(*map(_ranks_of, sides))
    made = []
    for place, side in enumerate(sides):
        own = side if _ranks_of(side) == common else read_again(place, common)
        lacks = tuple(sorted(every - _ranks_of(side)))
        made.append(Side.of(side.label, (_of_ranks(capture, common, lacks) for capture in own.captures)))
    return made


def _shared(sides: Sequence[Side]) -> frozenset[int] | None:
    """Ranks that every capture has, of jobs of one size; `None` where all have the same, or none is shared."""
    captures = [capture for side in sides for capture in side.captures]
    ranks, sizes = [_ranks(capture) for capture in captures], {world_size(capture) for capture in captures}
    common = frozenset.intersection(*ranks)
    is_told = len(sizes) == 1 and None not in sizes and common
    return common if is_told and any(own != common for own in ranks) else None


def _of_ranks(capture: Capture, common: Collection[int], lacks: tuple[int, ...]) -> Capture:
    tables = {
        name: frame[frame["rank"].isin([*common])].reset_index(drop=True) if "rank" in frame else frame
        for name, frame in capture.tables.items()
    }
    return replace(capture, tables=tables, lacks=lacks)


def _ranks_of(side: Side) -> frozenset[int]:
    return frozenset[int]().union(*map(_ranks, side.captures))


def _ranks(capture: Capture) -> frozenset[int]:
    frame = capture.table("ranks")
    return frozenset() if frame is None else frozenset(int(rank) for rank in frame["rank"])


BASELINES = Path(".traceanalyzer", "baselines")
"""Folder of baselines, below the current one."""

BASELINE = "baseline:"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What of each source is read.

    Attributes:
        load: ranks, steps and rules of names; steps are complete ones unless the user names some.
        all_runs: take every run of a folder as a repeat instead of the newest only.
        is_judged: gates look at the comparison: no run of several is chosen for them.
        jobs: processes.
    """

    load: LoadOptions = field(default_factory=lambda: LoadOptions(selection=Selection(steps="complete")))
    all_runs: bool = False
    is_judged: bool = False
    jobs: int | None = None


def read_sides(sources: Sequence[str | Sequence[str | TraceSet]], options: SourceOptions) -> tuple[Side, ...]:
    """The sides in order, each under a name of its own, of the ranks that all of them have."""

    def read_again(place: int, ranks: frozenset[int]) -> Side:
        return read_side(sources[place], replace(options, load=replace(options.load, ranks=ranks)))

    sides = with_same_ranks([read_side(source, options) for source in sources], read_again)
    firsts = [source if isinstance(source, str) else source[0] for source in sources]
    paths = [Path(first) if isinstance(first, str) else None for first in firsts]
    return tuple(_with_distinct_names(paths, sides))


def read_side(source: str | Sequence[str | TraceSet], options: SourceOptions) -> Side:
    """One side: a source, or several repeats of one strategy written `a+b+c`, or as a list; `NAME=source` names it.

    A source is a folder (or file) of traces, a `summary.json`, or `baseline:NAME`; of a list also traces in memory.

    Raises:
        InputError: a source cannot be read.
    """
    several = [source] if isinstance(source, str) else source
    named = [(None, [one]) if isinstance(one, TraceSet) else _named(one) for one in several]
    captures = [capture for _, parts in named for part in parts for capture in _read(part, options)]
    return Side.of(named[0][0] or captures[0].label, captures)


def save_baseline(name: str, side: Side) -> Path:
    """Write a side's captures, with the date, as `NAME.json` and return the path.

    Raises:
        UsageError: the name is not a plain file name, or the file cannot be written.
    """
    path = baseline_path(name)
    saved = datetime.now(UTC).isoformat(timespec="milliseconds")
    content = {"label": side.label, "saved": saved, "captures": [to_json(capture) for capture in side.captures]}
    with whole_file(path) as draft:
        draft.write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False), encoding="utf-8")
    return path


def baseline_path(name: str) -> Path:
    """Path of a baseline.

    Raises:
        UsageError: the name is not a plain file name.
    """
    if not name or name != Path(name).name or name.startswith("."):
        raise UsageError(f"{name!r}: a baseline's name is a plain file name such as main or ddp-2gpu")
    return BASELINES / f"{name}.json"


def baseline_names() -> list[str]:
    """Those that are kept."""
    return sorted(path.stem for path in BASELINES.glob("*.json"))


def places(source: str) -> list[Path]:
    """The folders and files that a source names: none of a baseline."""
    return [Path(part) for part in _named(source)[1] if Path(part).exists()]


def _named(source: str) -> tuple[str | None, list[str]]:
    """`NAME=a+b` as its name and its parts."""
    name, separator, rest = source.partition("=")
    given = name if separator and not Path(source).exists() else None
    own = source if given is None else rest
    is_one = "+" not in own or Path(own).exists()  # a path may really be called so
    return given, [own] if is_one else [part for part in own.split("+") if part]


def _read(source: str | TraceSet, options: SourceOptions) -> list[Capture]:
    if isinstance(source, TraceSet):
        return [_in_memory(source, options.load.ranks)]
    if source.startswith(BASELINE):
        _, side = read_baseline(source.removeprefix(BASELINE))
        return [*Side.of(source.removeprefix(BASELINE), side.captures).captures]
    if not source:
        raise UsageError("a run to compare is named by nothing (an unset variable?)")
    path = Path(source)
    if path.suffix == ".json" and path.is_file():
        content = _decoded(path)
        if "results" in content:
            return [_of_summary_file(path, content)]
    return _of_traces(path, options)


def _of_traces(path: Path, options: SourceOptions) -> list[Capture]:
    found = of_files((path,)) if path.is_file() else discover(path, follows_links=options.load.follows_links)
    if options.is_judged and not options.all_runs:
        refuse_several_runs(found)
    label = label_of(path)
    runs = found.runs if options.all_runs else found.runs[-1:]
    notes = () if options.all_runs else other_runs(found)
    return [_of_run(found, run, label, notes, options) for run in runs]


def _of_run(found: Found, run: Run, label: str, notes: tuple[str, ...], options: SourceOptions) -> Capture:
    """One run over the steps that all its ranks completed; read once more when the ranks completed others."""
    summary = summarise(found, run, options.load, jobs=options.jobs)
    shared, wanted = _steps_of(summary.results)
    if wanted is not None:
        selection = replace(options.load.selection, steps=wanted)
        summary = summarise(found, run, replace(options.load, selection=selection), jobs=options.jobs)
    info, more = run_info.read_or_note(run.info)
    return _capture(summary.results, label, shared, info, (*notes, *more, *summary.notes), summary.skipped)


def _steps_of(results: Results) -> tuple[tuple[int, ...], str | None]:
    """The steps that all ranks completed, and how to select them where the results are of others."""
    steps, ranks = (results[name].to_frame() for name in ("steps", "breakdown"))
    shared = shared_steps(steps, ranks)
    return shared, None if is_of_steps(steps, ranks, shared) else ",".join(map(str, shared)) or "all"


def _in_memory(traces: TraceSet, asked: frozenset[int] | None) -> Capture:
    ranks = [trace for trace in traces.ranks if asked is None or trace.rank in asked]
    shared, wanted = _steps_of(run(ranks, ("steps", "breakdown")))
    if wanted is not None:
        ranks = [with_steps(trace, wanted) for trace in ranks]
    return _capture(run(ranks), traces.label, shared, None, traces.notes, traces.skipped)


def _capture(
    results: Results, label: str, shared: tuple[int, ...], info: run_info.RunInfo | None, notes: Sequence[str],
    skipped: Sequence[Skipped],
) -> Capture:  # fmt: skip
    said = (*notes, *(f"{item.what}: {item.why}" for item in skipped))
    return Capture(label, "traces", of_results(results), shared, is_exact=True, info=info, notes=said)


def _of_summary_file(path: Path, content: Mapping[str, Any]) -> Capture:
    stored = converted({name: value for name, value in content.items() if value}, StoredSummary, str(path))
    tables = of_rows(stored.results, str(path)) | _beside(path, stored.files)
    steps, ranks = tables.get("steps"), tables.get("breakdown")
    shared = shared_steps(steps, ranks)
    is_exact = is_of_steps(steps, ranks, shared)
    why = (
        f"{path} is of a whole capture: its tables of kernels and collectives cannot be given per step. "
        "Compare the traces, or save a baseline of them."
    )
    info, more = stored.run_info, tuple[str, ...]()
    if info is None:
        beside = path.with_name("run.json")
        info, more = run_info.read_or_note(beside if beside.is_file() else None)
    notes = (*stored.notes, *([] if is_exact else [why]), *more)
    return Capture(stored.label or path.parent.name, "summary.json", tables, shared, is_exact, info, notes)


def _beside(path: Path, files: Iterable[str]) -> dict[str, pd.DataFrame]:
    """The tables for which a summary of many ranks has no room.

    Raises:
        InputError: one is not where it should be, beside the summary.
    """
    found = {}
    for name in files:
        place = path.parent / "tables" / f"{Path(name).name}.parquet"
        try:
            found[name] = pd.read_parquet(place).convert_dtypes()
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: its table {name} is not in {place}; keep the folder together") from error
    return found


def read_baseline(name: str) -> tuple[str | None, Side]:
    """When a baseline was saved (not known of old ones), and what it holds under the label that it was saved of.

    Raises:
        InputError: there is none of that name, or it cannot be read.
    """
    path = baseline_path(name)
    if not path.is_file():
        there = baseline_names()
        have = f"there are {', '.join(there)}" if there else f"there are none in {BASELINES}"
        raise InputError(f"baseline:{name}: no such baseline; {have}")
    stored = converted(_decoded(path), StoredBaseline, str(path))
    return stored.saved, Side(stored.label, tuple(of_stored(one, str(path)) for one in stored.captures))


def _decoded(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _with_distinct_names(places: Sequence[Path | None], sides: Sequence[Side]) -> Iterator[Side]:
    """Sides under distinct names: `torch/ddp` and `nsys/ddp` by the folders that tell them apart, else `ddp (2)`."""
    above = [None if place is None else place.resolve().parent.parts if place.exists() else () for place in places]
    seen = Counter[str]()
    for side, folders in zip(sides, above, strict=True):
        alike = [own for own, other in zip(above, sides, strict=True) if other.label == side.label and own is not None]
        parts = folders or ()
        depths = range(1, len(parts) + 1) if len(alike) > 1 else ()
        depth = next((depth for depth in depths if sum(own[-depth:] == parts[-depth:] for own in alike) == 1), 0)
        label = "/".join((*parts[len(parts) - depth :], side.label))
        seen[label] += 1
        yield Side.of(label if seen[label] == 1 else f"{label} ({seen[label]})", side.captures)
