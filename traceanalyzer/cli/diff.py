"""`analyze-traces diff`: compare runs."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer import __version__
from traceanalyzer.cli.options import (
    INCONCLUSIVE,
    JSON,
    OPEN,
    command,
    command_line,
    console_of,
    format_option,
    gate_code,
    gate_options,
    load_options,
    option,
    options_of,
    part_options,
    print_written,
    rare,
    select_option,
    steps_option,
    talk_options,
    wanted_gates,
)
from traceanalyzer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceanalyzer.diff.sources import SourceOptions
    from traceanalyzer.report.comparison import DiffReport

FORMATS = ("html", "csv", "json", "md")

side_options = options_of(
    steps_option("Which steps; of these the complete ones that all ranks have", "complete"),
    part_options,
    select_option("takes each as a repeat"),
)
"""What of each run is compared."""


@command()
@click.argument("base")
@click.argument("others", nargs=-1, required=True, metavar="OTHER...")
@option("--output -o FOLDER", "Where to write (default: reports/diff_<base>_<other>).")
@format_option(FORMATS, "all")
@JSON
@side_options
@OPEN
@gate_options
@rare("--inconclusive CODE", "Exit code if no gate fails but noise could explain the difference; 0 passes.",
      type=click.IntRange(0, 255), default=INCONCLUSIVE)  # fmt: skip
@rare("--force", "Compare runs even if their work differs; replace files that no report wrote.")
@talk_options
def diff(base: str, others: tuple[str, ...], **options: Any) -> int:
    """Compare runs per optimizer step: time of each part, new and removed operations.

    BASE and OTHER are folders of traces, a summary.json, or baseline:NAME. Write a+b+c for several captures of one
    strategy (their spread tells noise from difference), and NAME=… to name a run.

    \b
    Examples:
      analyze-traces diff profile/naive profile/ddp
      analyze-traces diff before=runs/1+runs/2+runs/3 after=runs/4+runs/5+runs/6
      analyze-traces diff baseline:main profile/new --fail-on 'step_ms +3%' --fail-on 'exposed_comm_pct +2pp'

    Writes summary.html, summary.csv, summary.json, summary.md and tables/; with gates also gate.xml (JUnit) and
    gate.md; with memory events or snapshots also memory.csv. With --json, prints summary.json.

    Exit codes: 0 done; 1 a gate failed; 2 wrong usage, unusable input, or runs that are not comparable; 4 no gate
    failed, but noise could explain the difference (or there are no repeats); 5 no gate failed, but the figure of one
    is missing or doubtful.
    """  # noqa: D301 - click wants the character itself
    from traceanalyzer import gate
    from traceanalyzer.cli.snapshots import changes, compare_alone, snapshot_sides
    from traceanalyzer.diff import compare
    from traceanalyzer.diff.sources import read_sides
    from traceanalyzer.report.comparison import DiffReport, writers
    from traceanalyzer.report.comparison.rows import plain_name
    from traceanalyzer.report.writers import gates

    console = console_of(options)
    wanted = wanted_gates(options, of_comparison=True)
    sources = replace(source_options(options), is_judged=bool(wanted))
    named = (base, *others)
    snapshots = snapshot_sides(named, follows_links=options["follow_links"])
    try:
        sides = read_sides(named, sources)
    except InputError:
        if not snapshots:
            raise
        return gate_code(compare_alone(snapshots, named, wanted, options, console), options["inconclusive"])
    comparison = compare(sides, force=options["force"])
    outcomes = gate.check_comparison(wanted, comparison, sources.load.ranks)
    memory = {}
    try:
        memory = {sides[place].label: one for place, one in changes(snapshots, named).items()} if snapshots else {}
    except InputError as error:
        console.print(f"Skipped: {error}", highlight=False, markup=False)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    report = DiffReport(comparison, outcomes, command_line(), created, __version__, memory)
    name = "_".join(["diff", *(plain_name(side.label) for side in sides)])
    # File systems count bytes.
    target = options["output"] or Path("reports", name.encode()[:200].decode(errors="ignore"))
    written, notes = _written(report, target, " and ".join(named), options)
    writers.show(report, console)
    gates.show(outcomes, console)
    page = print_written(written, target, notes, options, console)
    if options["open_page"]:
        click.launch(str(page))
    return gate_code(outcomes, options["inconclusive"])


def _written(
    report: "DiffReport", target: Path, source: str, options: dict[str, Any]
) -> "tuple[list[Path], Sequence[str]]":
    """Write all files of a report on `source`; returns them, and notes."""
    from traceanalyzer.diff.captures import to_json
    from traceanalyzer.report.comparison import DIFF_WRITERS
    from traceanalyzer.report.writers import gates
    from traceanalyzer.report.writers.write import fingerprint, whole

    made = report.comparison
    captures = [to_json(capture) for side in made.sides for capture in side.captures]
    content = fingerprint(__version__, made.runs, made.is_forced, captures, report.outcomes)
    with whole(target, source, content, force=options["force"]) as draft:
        asked = (*options["formats"], "json") if options["formats"] and options["as_json"] else options["formats"]
        files = [path for name in dict.fromkeys(asked or FORMATS) for path in DIFF_WRITERS[name](report, draft.path)]
        files += gates.write(report.outcomes, draft.path, inconclusive_fails=options["inconclusive"] != 0)
        return draft.final(files), draft.notes


def source_options(options: dict[str, Any]) -> "SourceOptions":
    """How the runs are read."""
    from traceanalyzer.diff.sources import SourceOptions

    return SourceOptions(load_options(options), options["select"] == "all", options["jobs"])
