"""Memory snapshots: beside traces, alone, and compared."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from traceanalyzer import __version__, gate
from traceanalyzer.cli.options import Options, Source, default_output, gate_code
from traceanalyzer.cli.output import command_line, print_notes, say, snapshots_in
from traceanalyzer.diff import Side, compare
from traceanalyzer.diff.sources import places
from traceanalyzer.discovery.clustering import Run
from traceanalyzer.errors import InputError
from traceanalyzer.gate import Gate, Outcome
from traceanalyzer.job import run_info
from traceanalyzer.job.model_state import completed
from traceanalyzer.loading import label_of, parse_ranks
from traceanalyzer.meaning.vocabulary import named
from traceanalyzer.report import snapshots
from traceanalyzer.report.comparison import memory_page, rows
from traceanalyzer.report.writers import fingerprint, whole, write_text
from traceanalyzer.report.writers import gates as gate_writer
from traceanalyzer.snapshots import (
    Examined,
    MemoryChange,
    change,
    examine_readable,
    examine_snapshots,
    sentences,
)
from traceanalyzer.snapshots.comparison import capture_of, job_of, ranks, run_json
from traceanalyzer.snapshots.reading import rank_of

Memory = tuple[tuple[Examined, ...], tuple[str, ...]]
"""Examined snapshots, and sentences about them."""


# A report on snapshots: alone, or as a part of a run's report.


def report_alone(paths: Sequence[Path], source: Source, options: Options, gates: Sequence[Gate]) -> int:
    """Write and print the memory report of a folder without traces; returns the exit code."""
    place, console = source.folder or source.trace_dir, options.console
    assert place is not None, "the snapshots are from there"
    label, info_path = label_of(place), run_json(paths)
    wanted = parse_ranks(source.ranks)
    paths = [path for path in paths if wanted is None or rank_of(path) in wanted]
    if not paths:
        raise InputError(f"{place}: no memory snapshot is of the ranks that were asked for")
    info, notes = run_info.read_or_note(info_path)
    model = completed(run_info.thresholds(info).get("trained_model"), source.model)
    examined, skipped = examine_readable(paths)
    job = job_of(examined, info, model, skipped)
    outcomes = []
    if gates:
        results: Any = {"memory": job.memory}
        lack = gate.lack_of_ranks(ranks(job), wanted, ()) or "; ".join(skipped) or None
        outcomes = gate.check_run(gates, results, label, lack=lack)
    files = [*paths, *([info_path] if info_path else [])]
    content = fingerprint(__version__, source.model, outcomes, files=files)
    target = options.output or default_output(place)
    with whole(target, str(place.resolve()), content, force=options.force) as draft:
        made = snapshots.write(examined, draft.path, label, command_line(), job)
        page = draft.final([*made, *gate_writer.write(outcomes, draft.path)])[0]
    snapshots.show(examined, console, [*job.sentences, *sentences(examined)])
    gate_writer.show(outcomes, console)
    print_notes(notes, console)
    say(console, f"Report: {page}")
    if options.as_json:
        click.echo((target / "memory.json").read_text(encoding="utf-8"))
    if options.open_page:
        click.launch(str(page))
    return gate_code(outcomes)


def memory_beside(paths: Sequence[Path], run: Run, runs: Sequence[Run]) -> Memory:
    """What snapshots beside a run's traces show."""
    own = of_run(paths, run, runs)
    others: tuple[str, ...] = ()
    if rest := [str(path) for path in paths if path not in own]:
        which = "the run of this snapshot is" if len(rest) == 1 else "the runs of these snapshots are"
        others = (f"Skipped: {named(rest)} ({which} another or unknown; analyze one snapshot by naming it alone)",)
    try:
        examined, skipped = examine_readable(own)
    except InputError as error:
        return (), (f"Skipped: {error}", *others)
    return examined, (*sentences(examined), *skipped, *others)


def of_run(paths: Sequence[Path], run: Run, runs: Sequence[Run]) -> list[Path]:
    """The snapshots that share more folders with this run's traces than with those of any other."""

    def shared(one: Run, path: Path) -> int:
        return max(
            len(Path(os.path.commonpath((path.absolute().parent, capture.path.absolute().parent))).parts)
            for capture in one.captures
        )

    others = [other for other in runs if other.label != run.label]
    return [path for path in paths if all(shared(run, path) > shared(other, path) for other in others)]


# Snapshots of several runs compared.


def snapshot_sides(sources: Sequence[str], *, follows_links: bool) -> dict[str, list[Path]]:
    """Snapshots by source of a comparison; none unless the base and another have some."""
    found = {source: snapshots_in(*places(source)[:1], follows_links=follows_links) for source in sources}
    known = {source: paths for source, paths in found.items() if paths}
    return known if sources[0] in known and any(source in known for source in sources[1:]) else {}


def changes(sides: Mapping[str, list[Path]], sources: Sequence[str]) -> dict[int, MemoryChange]:
    """By place of each later source with snapshots: their change from the base's.

    Raises:
        InputError: a snapshot cannot be read.
    """
    base = examine_snapshots(sides[sources[0]])
    later = [(place, sides[source]) for place, source in enumerate(sources) if place and source in sides]
    return {place: change(base, examine_snapshots(paths)) for place, paths in later}


def compare_alone(
    sides: Mapping[str, list[Path]],
    sources: Sequence[str],
    wanted: Sequence[Gate],
    options: Options,
    follows_links: bool,
) -> list[Outcome]:
    """Compare folders that hold snapshots only, and check gates: writes `memory.html` and `memory.csv`.

    Raises:
        UsageError: with gates, runs that by their run.json did not do the same work; or a gate names no figure.
    """
    labels = [label_of(Path(source)) for source in sources]
    names = labels if len({*labels}) == len(labels) else list(sources)
    outcomes = _gated(dict(zip(names, sources, strict=True)), wanted, options, follows_links) if wanted else []
    changed = [(names[place], rows.SNAPSHOTS, one) for place, one in changes(sides, sources).items()]
    target = options.output or Path("reports", "_".join(["diff", *labels])[:200])
    content = fingerprint(__version__, outcomes, files=[path for side in sides.values() for path in side])
    with whole(target, " and ".join(sources), content, force=options.force) as draft:
        page = write_text(draft.path / "memory.html", memory_page(changed, names[0], command_line()))
        made = [page, *rows.write_memory(changed, draft.path)]
        made += gate_writer.write(outcomes, draft.path, inconclusive_fails=options.inconclusive != 0)
        page = draft.final(made)[0]
    say(options.console, *(f"• {sentence}" for sentence in rows.memory_sentences(changed)))
    gate_writer.show(outcomes, options.console)
    say(options.console, f"Report: {page}")
    return outcomes


def _gated(sources: Mapping[str, str], wanted: Sequence[Gate], options: Options, follows_links: bool) -> list[Outcome]:
    """The gates on each later run; captures of `a+b` are repeats."""
    sides = []
    for label, source in sources.items():
        captures = []
        for place in places(source):
            paths = snapshots_in(place, follows_links=follows_links)
            if not paths:
                raise InputError(f"{place}: no memory snapshots, so its memory cannot be compared")
            info, _ = run_info.read_or_note(run_json(paths))
            captures.append(capture_of(examine_snapshots(paths), info, label))
        sides.append(Side(label, tuple(captures)))
    return gate.check_comparison(wanted, compare(sides, force=options.force))
