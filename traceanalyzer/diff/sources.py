"""Where the sides of a comparison come from."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Results, run
from traceanalyzer.diff import captures as diff_captures
from traceanalyzer.diff.captures import (
    Capture,
    Side,
    StoredSummary,
    is_of_steps,
    of_json,
    of_results,
    of_rows,
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

SUMMARY_VERSIONS = (1, 2, 3, 4)
"""Formats of summary.json that are understood."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What of each source is read.

    Attributes:
        load: ranks, steps and rules of names; steps are complete ones unless the user names some.
        all_runs: take every run of a folder as a repeat instead of the newest only.
        is_judged: gates look at the comparison: no run of several is chosen for them.
        jobs: processes.
        baselines: folder of baselines.
    """

    load: LoadOptions = field(default_factory=lambda: LoadOptions(selection=Selection(steps="complete")))
    all_runs: bool = False
    is_judged: bool = False
    jobs: int | None = None
    baselines: Path = BASELINES


def read_sides(sources: Iterable[str], options: SourceOptions) -> tuple[Side, ...]:
    """The sides in order, each under a name of its own, of the ranks that all of them have."""
    given = list(sources)

    def read_again(place: int, ranks: frozenset[int]) -> Side:
        return read_side(given[place], replace(options, load=replace(options.load, ranks=ranks)))

    sides = with_same_ranks([read_side(source, options) for source in given], read_again)
    return tuple(with_distinct_names(_named_by_folders(given, sides)))


def read_side(source: str, options: SourceOptions) -> Side:
    """One side: a source, or several repeats of one strategy written `a+b+c`; `NAME=source` names it.

    A source is a folder (or file) of traces, a `summary.json`, or `baseline:NAME`.

    Raises:
        InputError: a source cannot be read.
    """
    given, parts = _named(source)
    captures = [capture for part in parts for capture in _read(part, options)]
    label = given or captures[0].label
    return Side.of(label, captures)


def save_baseline(name: str, side: Side, folder: Path = BASELINES) -> Path:
    """Write a side's captures, with the date, as `NAME.json` and return the path.

    Raises:
        UsageError: the name is not a plain file name, or the file cannot be written.
    """
    path = baseline_path(name, folder)
    saved = datetime.now(UTC).isoformat(timespec="milliseconds")
    content = {"label": side.label, "saved": saved, "captures": [to_json(capture) for capture in side.captures]}
    with whole_file(path) as draft:
        draft.write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False), encoding="utf-8")
    return path


def baseline_path(name: str, folder: Path = BASELINES) -> Path:
    """Path of a baseline.

    Raises:
        UsageError: the name is not a plain file name.
    """
    if not name or name != Path(name).name or name.startswith("."):
        raise UsageError(f"{name!r}: a baseline's name is a plain file name such as main or ddp-2gpu")
    return folder / f"{name}.json"


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


def _read(source: str, options: SourceOptions) -> list[Capture]:
    if source.startswith(BASELINE):
        _, side = read_baseline(source.removeprefix(BASELINE), options.baselines)
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
    steps, ranks = (summary.results[name].to_frame() for name in ("steps", "breakdown"))
    shared = shared_steps(steps, ranks)
    if not is_of_steps(steps, ranks, shared):
        wanted = ",".join(map(str, shared)) if shared else "all"
        selection = replace(options.load.selection, steps=wanted)
        summary = summarise(found, run, replace(options.load, selection=selection), jobs=options.jobs)
    info, more = run_info.read_or_note(run.info)
    return _capture(summary.results, label, shared, info, (*notes, *more, *summary.notes), summary.skipped)


def _capture(
    results: Results, label: str, shared: tuple[int, ...], info: run_info.RunInfo | None, notes: Sequence[str],
    skipped: Sequence[Skipped],
) -> Capture:  # fmt: skip
    return Capture(
        label=label,
        source="traces",
        tables=of_results(results),
        steps=shared,
        is_exact=True,
        info=info,
        notes=(*notes, *(f"{item.what}: {item.why}" for item in skipped)),
        dimensions=diff_captures.dimensions(results),
    )


def _of_summary_file(path: Path, content: Mapping[str, Any]) -> Capture:
    if content.get("format_version") not in SUMMARY_VERSIONS:
        raise InputError(f"{path}: a summary.json of another version; make it again, or compare the traces")
    tables = of_rows(content["results"], str(path)) | _beside(path, content.get("files"))
    steps, ranks = tables.get("steps"), tables.get("breakdown")
    shared = shared_steps(steps, ranks)
    is_exact = is_of_steps(steps, ranks, shared)
    filled = {name: value for name, value in content.items() if value}
    stored = diff_captures.without_tables(filled, StoredSummary, str(path))
    info, more = _info_of(path, stored)
    why = () if is_exact else (
        (
            f"{path} is of a whole capture: its tables of kernels and collectives cannot be given per step. "
            "Compare the traces, or save a baseline of them."
        ),
    )  # fmt: skip
    return Capture(
        label=stored.label or path.parent.name,
        source="summary.json",
        tables=tables,
        steps=shared,
        is_exact=is_exact,
        info=info,
        notes=(*stored.notes, *why, *more),
    )


def _beside(path: Path, files: Any) -> dict[str, pd.DataFrame]:
    """The tables for which a summary of many ranks has no room.

    Raises:
        InputError: one is not where it should be, beside the summary.
    """
    found = {}
    for name in files if isinstance(files, Mapping) else ():
        place = path.parent / "tables" / f"{Path(name).name}.parquet"
        try:
            found[name] = pd.read_parquet(place).convert_dtypes()
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: its table {name} is not in {place}; keep the folder together") from error
    return found


def _info_of(path: Path, stored: StoredSummary) -> tuple[run_info.RunInfo | None, tuple[str, ...]]:
    """What ran, from the summary itself, else from a run.json beside it."""
    if stored.run_info is not None:
        return stored.run_info, ()
    beside = path.with_name("run.json")
    return run_info.read_or_note(beside if beside.is_file() else None)


def read_baseline(name: str, folder: Path = BASELINES) -> tuple[str | None, Side]:
    """When a baseline was saved (not known of old ones), and what it holds under the label that it was saved of.

    Raises:
        InputError: there is none of that name, or it cannot be read.
    """
    path = baseline_path(name, folder)
    if not path.is_file():
        there = sorted(file.stem for file in folder.glob("*.json"))
        have = f"there are {', '.join(there)}" if there else f"there are none in {folder}"
        raise InputError(f"baseline:{name}: no such baseline; {have}")
    content = _decoded(path)
    captures, label, saved = (content.get(name) for name in ("captures", "label", "saved"))
    if not isinstance(captures, list) or not captures or not isinstance(label, str):
        raise InputError(f"{path}: not a baseline; save it again with `baseline save`")
    side = Side(label, tuple(of_json(one, str(path)) for one in captures))
    return saved if isinstance(saved, str) else None, side


def _decoded(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _named_by_folders(sources: list[str], sides: list[Side]) -> list[Side]:
    """Folders of one name with as many of the folders above as tell them apart: `torch/ddp` and `nsys/ddp`."""
    labels = [side.label for side in sides]
    paths = [Path(source).resolve().parent.parts if Path(source).exists() else () for source in sources]
    made = []
    for side, parts in zip(sides, paths, strict=True):
        alike = [other for other, label in zip(paths, labels, strict=True) if label == side.label]
        depths = range(1, len(parts) + 1) if len(alike) > 1 else ()
        depth = next((depth for depth in depths if sum(other[-depth:] == parts[-depth:] for other in alike) == 1), 0)
        label = "/".join((*parts[len(parts) - depth :], side.label))
        made.append(Side.of(label, side.captures))
    return made


def with_distinct_names(sides: list[Side]) -> list[Side]:
    """Sides under distinct names: a second `ddp` becomes `ddp (2)`."""
    seen: dict[str, int] = {}
    made = []
    for side in sides:
        seen[side.label] = seen.get(side.label, 0) + 1
        label = side.label if seen[side.label] == 1 else f"{side.label} ({seen[side.label]})"
        made.append(Side.of(label, side.captures))
    return made


# Traces that are in memory, as a side of a comparison.


def side_of(repeats: Sequence[TraceSet]) -> Side:
    """One side, of one capture or several repeats; it is called as the first is."""
    captures = tuple(_captured(traces) for traces in repeats)
    return Side(captures[0].label, captures)


def _captured(traces: TraceSet) -> Capture:
    """The small tables over the steps that all ranks completed."""
    found = run(traces.ranks, ("steps", "breakdown"))
    steps, ranks = (found[name].to_frame() for name in ("steps", "breakdown"))
    shared = shared_steps(steps, ranks)
    looked_at = traces
    if not is_of_steps(steps, ranks, shared):
        wanted = ",".join(map(str, shared)) if shared else "all"
        looked_at = replace(traces, ranks=tuple(with_steps(trace, wanted) for trace in traces.ranks))
    return _capture(run(looked_at.ranks), traces.label, shared, None, traces.notes, traces.skipped)
