"""What the report command does with memory snapshots: beside traces, or alone."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from traceanalyzer.cli.options import command_line, default_output, gate_code
from traceanalyzer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from rich.console import Console

    from traceanalyzer.analyses import Results
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.gate import Gate, Outcome
    from traceanalyzer.snapshots import Examined, MemoryChange
    from traceanalyzer.snapshots.comparison import Job


Memory = tuple[tuple["Examined", ...], tuple[str, ...]]
"""What memory snapshots tell, and in sentences."""


def snapshots_in(*places: Path | None, follows_links: bool = False) -> list[Path]:
    """Snapshots in the folder, or the file, that was named; links to outside it are said and skipped."""
    from traceanalyzer.discovery import LINK_OUT
    from traceanalyzer.discovery.candidates import closed_below, find_snapshots

    named = [place for place in places if place is not None]
    if len(named) != 1 or not named[0].exists():
        return []
    found = find_snapshots(named[0], follows_links=follows_links)
    left_out = [] if follows_links else sorted({*find_snapshots(named[0], follows_links=True)} - {*found})
    for path in left_out:
        click.echo(f"Skipped: {path} ({LINK_OUT})", err=True)
    for path in closed_below(named[0]) if found else ():
        click.echo(f"Skipped: {path} (cannot be read)", err=True)
    return found


def of_run(paths: "Sequence[Path]", run: "Run", runs: "Sequence[Run]") -> list[Path]:
    """Of a folder with several runs those snapshots whose path is more of the run's than of any other's."""
    others = [other for other in runs if other.label != run.label]

    def shared(one: "Run", path: Path) -> int:
        """How many folders the snapshot has in common with the run's traces."""
        return max(
            len(Path(os.path.commonpath((path.absolute().parent, held.path.absolute().parent))).parts)
            for held in one.captures
        )

    return [path for path in paths if all(shared(run, path) > shared(other, path) for other in others)]


def report_alone(paths: "Sequence[Path]", place: Path, options: dict[str, Any], console: "Console") -> tuple[Path, int]:
    """Write and print the memory report of a folder that has snapshots only; returns the page and the exit code."""
    from traceanalyzer import __version__, gate
    from traceanalyzer.cli.one_run import with_model
    from traceanalyzer.job import run_info
    from traceanalyzer.loading import label_of, parse_ranks
    from traceanalyzer.report import snapshots
    from traceanalyzer.report.writers import gates
    from traceanalyzer.report.writers import write as writers_write
    from traceanalyzer.snapshots import examine_readable, sentences
    from traceanalyzer.snapshots.comparison import job_of, ranks, run_json
    from traceanalyzer.snapshots.reading import rank_of

    label, info_path = label_of(place), run_json(paths)
    wanted = parse_ranks(options["ranks"])
    if wanted is not None:
        paths = [path for path in paths if rank_of(path) in wanted]
        if not paths:
            raise InputError(f"{place}: no memory snapshot is of the ranks that were asked for")
    info, notes = run_info.read_or_note(info_path)
    known = with_model(run_info.thresholds(info), options["model"])
    examined, skipped = examine_readable(paths)
    job = job_of(examined, info, known.get("trained_model"), skipped)
    outcomes = []
    if options["gates"]:
        lack = gate.lack_of_ranks(ranks(job), wanted, ()) or "; ".join(skipped) or None
        outcomes = gate.check_run(options["gates"], cast("Results", {"memory": job.memory}), label, lack=lack)
    target = options["output"] or default_output(place)
    files = [*paths, *([info_path] if info_path else [])]
    content = writers_write.fingerprint(__version__, options["model"], outcomes, files=files)
    with writers_write.whole(target, str(place.resolve()), content, force=options["force"]) as draft:
        made = write(examined, draft.path, label, job)
        page = draft.final([*made, *gates.write(outcomes, draft.path)])[0]
    snapshots.show(examined, console, [*job.sentences, *sentences(examined)])
    gates.show(outcomes, console)
    for note in notes:
        console.print(f"Note: {note}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"Report: {page}", highlight=False, soft_wrap=True, markup=False)
    return page, gate_code(outcomes)


def memory_beside(paths: "Sequence[Path]", run: "Run", runs: "Sequence[Run]", steps: "pd.DataFrame") -> Memory:
    """What snapshots beside a run's traces tell with these traces' steps, and in sentences for the report."""
    if not paths:
        return (), ()
    from traceanalyzer.snapshots import beside_trace, examine_readable, sentences

    own = of_run(paths, run, runs)
    others = _of_others([path for path in paths if path not in own])
    try:
        examined, skipped = examine_readable(own)
    except InputError as error:
        return (), (f"Skipped: {error}", *others)
    beside = beside_trace(examined, steps)
    return beside, (*sentences(beside), *skipped, *others)


def _of_others(paths: "Sequence[Path]") -> tuple[str, ...]:
    """That snapshots lie beside other runs, or beside several alike; nothing without any."""
    from traceanalyzer.meaning.vocabulary import named

    if not paths:
        return ()
    what, each = ("a memory snapshot", "it") if len(paths) == 1 else ("memory snapshots", "one")
    files = named([str(path) for path in paths])
    return (f"Skipped: {files} ({what} beside other runs, or beside several; name {each} alone to have it told)",)


def say(examined: "Sequence[Examined]", told: "Sequence[str]", target: Path, console: "Console") -> None:
    """Print what snapshots beside the traces tell."""
    if examined:
        from traceanalyzer.report import snapshots

        snapshots.show(examined, console, told)
        console.print(f"Memory: {target / 'memory.html'}", highlight=False, soft_wrap=True, markup=False)
    elif told:
        console.print(*told, sep="\n", highlight=False, soft_wrap=True, markup=False)


def write(examined: "Sequence[Examined]", folder: Path, label: str, job: "Job | None" = None) -> list[Path]:
    """The page and the JSON."""
    from traceanalyzer.report import snapshots

    return snapshots.write(examined, folder, label, command_line(), job)


def snapshot_sides(sources: "Sequence[str]", *, follows_links: bool) -> "dict[str, list[Path]]":
    """By source that a comparison names its snapshots; none unless the base and another have some."""
    from traceanalyzer.diff.sources import places

    found = {source: snapshots_in(*places(source)[:1], follows_links=follows_links) for source in sources}
    known = {source: paths for source, paths in found.items() if paths}
    return known if sources[0] in known and any(source in known for source in sources[1:]) else {}


def changes(sides: "dict[str, list[Path]]", sources: "Sequence[str]") -> "dict[int, MemoryChange]":
    """By place of each later source that has snapshots what they tell against the base's.

    Raises:
        InputError: a snapshot cannot be read.
    """
    from traceanalyzer.snapshots import change, examine_snapshots

    base = examine_snapshots(sides[sources[0]])
    return {
        place: change(base, examine_snapshots(sides[source]))
        for place, source in enumerate(sources)
        if place and source in sides
    }


def compare_alone(
    sides: "dict[str, list[Path]]",
    sources: "Sequence[str]",
    wanted: "Sequence[Gate]",
    options: dict[str, Any],
    console: "Console",
) -> "list[Outcome]":
    """Compare the memory of folders that have snapshots only, and check gates on it: `memory.html` and `memory.csv`.

    Raises:
        UsageError: with gates, runs that by their run.json did not do the same work; or a gate names no figure.
    """
    from traceanalyzer import __version__
    from traceanalyzer.loading import label_of
    from traceanalyzer.report.comparison import rows, writers
    from traceanalyzer.report.writers import gates
    from traceanalyzer.report.writers import write as writers_write

    names = [label_of(Path(source)) for source in sources]
    if len({*names}) < len(names):
        names = list(sources)
    outcomes = _gated(dict(zip(names, sources, strict=True)), wanted, options) if wanted else []
    held = {names[place]: {rows.SNAPSHOTS: one} for place, one in changes(sides, sources).items()}
    target = options["output"] or Path("reports", "_".join(["diff", *(label_of(Path(one)) for one in sources)])[:200])
    files = [path for side in sides.values() for path in side]
    content = writers_write.fingerprint(__version__, outcomes, files=files)
    with writers_write.whole(target, " and ".join(sources), content, force=options["force"]) as draft:
        path = draft.path / "memory.html"
        path.write_text(writers.memory_page(held, names[0], command_line()), encoding="utf-8", errors="replace")
        made = [path, *rows.write_csv(held, draft.path)]
        made += gates.write(outcomes, draft.path, inconclusive_fails=options["inconclusive"] != 0)
        page = draft.final(made)[0]
    for sentence in rows.sentences(held):
        console.print(f"• {sentence}", highlight=False, markup=False)
    gates.show(outcomes, console)
    console.print(f"Report: {page}", highlight=False, soft_wrap=True, markup=False)
    return outcomes


def _gated(sources: "dict[str, str]", wanted: "Sequence[Gate]", options: dict[str, Any]) -> "list[Outcome]":
    """The gates on each later run; captures of `a+b` are repeats, and a file that cannot be read fails them."""
    from traceanalyzer import gate
    from traceanalyzer.diff import Side, compare
    from traceanalyzer.diff.sources import places
    from traceanalyzer.job import run_info
    from traceanalyzer.snapshots import examine_snapshots
    from traceanalyzer.snapshots.comparison import capture_of, run_json

    sides = []
    for label, source in sources.items():
        captures = []
        for place in places(source):
            paths = snapshots_in(place, follows_links=options["follow_links"])
            if not paths:
                raise InputError(f"{place}: it has no memory snapshots, so that its memory cannot be compared")
            info, _ = run_info.read_or_note(run_json(paths))
            captures.append(capture_of(examine_snapshots(paths), info, label))
        sides.append(Side(label, tuple(captures)))
    return gate.check_comparison(wanted, compare(sides, force=options["force"]))
