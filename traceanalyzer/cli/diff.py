"""`analyze-traces diff`: runs beside each other."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer import __version__
from traceanalyzer.cli.options import (
    INCONCLUSIVE,
    OPEN,
    STEPS,
    command_line,
    gate_code,
    gate_options,
    load_options,
    output_option,
    part_options,
    print_written,
    select_option,
    steps_option,
    talk_options,
    wanted_gates,
)
from traceanalyzer.cli.snapshots import changes as memory_changes
from traceanalyzer.cli.snapshots import compare_alone, snapshot_sides
from traceanalyzer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceanalyzer.diff import Comparison, Side
    from traceanalyzer.diff.sources import SourceOptions
    from traceanalyzer.gate import Outcome
    from traceanalyzer.report.comparison import DiffReport
    from traceanalyzer.snapshots import MemoryChange

FORMATS = ("html", "csv", "json", "md")


@click.command()
@click.argument("base")
@click.argument("others", nargs=-1, required=True, metavar="OTHER...")
@output_option(what="Where to write (default: reports/diff_<base>_<other>).")
@click.option("--format", "formats", multiple=True, type=click.Choice(FORMATS), metavar="NAME",
              help=f"What to write: {', '.join(FORMATS)}; repeatable (default: all).")  # fmt: skip
@click.option(
    "--force",
    is_flag=True,
    help="Compare runs that did not do the same work (the report says so), and replace files that no report wrote.",
)
@select_option("takes each as a repeat")
@steps_option(f"Steps to compare: {STEPS}. Of these the complete ones that all ranks have.", "complete")
@part_options
@OPEN
@gate_options
@click.option("--inconclusive", type=click.IntRange(0, 255), default=INCONCLUSIVE, show_default=True, metavar="CODE",
              help="Exit code when no gate fails, but one cannot be told from noise; 0 passes.")  # fmt: skip
@talk_options
def diff(base: str, others: tuple[str, ...], **options: Any) -> int:
    """Compare runs, per optimizer step: what each part of the step costs, and which operations are new or gone.

    BASE and OTHER are folders of traces, a summary.json, or baseline:NAME. Write a+b+c for several captures of one
    strategy (their spread tells noise from difference), and NAME=… to name a run.

    \b
    Examples:
      analyze-traces diff profile/naive profile/ddp
      analyze-traces diff before=runs/1+runs/2+runs/3 after=runs/4+runs/5+runs/6
      analyze-traces diff baseline:main profile/new --fail-on 'step_ms +3%' --fail-on 'exposed_comm_pct +2pp'

    Writes summary.html, summary.csv, summary.json, summary.md and tables/; with gates also gate.xml (JUnit) and
    gate.md. Of traces with memory events, and of folders with memory snapshots, beside traces or alone, memory.csv has
    each rank's peak by category and by line. Exit codes: 0 done; 1 a gate failed; 2 usage, input, or runs that are not
    comparable; 4 no gate failed, but the repeats cannot tell one from noise (or there are none); 5 no gate failed, but
    a figure is missing or doubtful.
    """  # noqa: D301 - click wants the character itself
    from rich.console import Console

    from traceanalyzer import gate
    from traceanalyzer.diff import compare
    from traceanalyzer.diff.sources import read_sides
    from traceanalyzer.report.comparison import DiffReport, writers
    from traceanalyzer.report.writers import gates

    console = Console(quiet=options["quiet"])
    wanted = wanted_gates(options, of_comparison=True)
    sources = replace(source_options(options), is_judged=bool(wanted))
    named = (base, *others)
    memory = snapshot_sides(named, follows_links=options["follow_links"])
    try:
        sides = read_sides(named, sources)
    except InputError:
        if not memory:
            raise
        outcomes = compare_alone(memory, named, wanted, options, console)
        return gate_code(outcomes, options["inconclusive"])
    comparison = compare(sides, force=options["force"])
    outcomes = gate.check_comparison(wanted, comparison, sources.load.ranks)
    report = DiffReport(
        comparison, outcomes, command_line(),
        datetime.now(UTC).isoformat(timespec="seconds"), __version__, _of_memory(memory, named, sides, console),
    )  # fmt: skip
    target = options["output"] or Path("reports", _folder(sides))
    written, notes = _written(report, target, " and ".join(named), options)
    writers.show(report, console)
    gates.show(report.outcomes, console)
    page = print_written(written, target, notes, options, console)
    if options["open_page"]:
        click.launch(str(page))
    return gate_code(outcomes, options["inconclusive"])


def _of_memory(
    memory: dict[str, list[Path]], named: "Sequence[str]", sides: "Sequence[Side]", console: Any
) -> "dict[str, MemoryChange]":
    """By label of a side what its memory snapshots have beyond the first side's; unfit ones are said and skipped."""
    try:
        changed = memory_changes(memory, named) if memory else {}
    except InputError as error:
        console.print(f"Skipped: {error}", highlight=False, markup=False)
        return {}
    return {sides[place].label: one for place, one in changed.items()}


def _written(
    report: "DiffReport", target: Path, source: str, options: dict[str, Any]
) -> tuple[list[Path], tuple[str, ...]]:
    """The files of a report of `source` in its folder, whole or not at all, and what there is to note of it."""
    from traceanalyzer.report.comparison import DIFF_WRITERS
    from traceanalyzer.report.writers import gates, write

    content = _content(report.comparison, report.outcomes)
    with write.whole(target, source, content, force=options["force"]) as draft:
        formats = dict.fromkeys(options["formats"] or FORMATS)
        files = [path for name in formats for path in DIFF_WRITERS[name](report, draft.path)]
        files += gates.write(report.outcomes, draft.path, inconclusive_fails=options["inconclusive"] != 0)
        return draft.final(files), draft.notes


def source_options(options: dict[str, Any]) -> "SourceOptions":
    """How sources are read, from the command's options."""
    from traceanalyzer.diff.sources import SourceOptions

    return SourceOptions(load_options(options), options["select"] == "all", options["jobs"])


def _folder(sides: "Sequence[Side]") -> str:
    from traceanalyzer.report.comparison.writers import plain_name

    name = "_".join(["diff", *(plain_name(side.label) for side in sides)])
    return name.encode()[:200].decode(errors="ignore")  # file systems count bytes


def _content(comparison: "Comparison", outcomes: "Sequence[Outcome]") -> str:
    from traceanalyzer.diff.captures import to_json
    from traceanalyzer.report.writers.write import fingerprint

    captures = [to_json(capture) for side in comparison.sides for capture in side.captures]
    return fingerprint(__version__, comparison.runs, comparison.is_forced, captures, outcomes)
