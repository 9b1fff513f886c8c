"""analyze-traces diff and baseline: runs compared, and those that later ones are compared with."""

import json
from pathlib import Path

import click

from traceanalyzer import __version__
from traceanalyzer.cli.options import (
    FORCE,
    INCONCLUSIVE,
    JSON,
    OPEN,
    Group,
    Options,
    Source,
    command,
    format_option,
    gate_code,
    gate_options,
    option,
    options_of,
    part_options,
    rare,
    select_option,
    steps_option,
    talk_options,
    with_options,
)
from traceanalyzer.cli.output import command_line, console_of, print_written, say
from traceanalyzer.errors import InputError

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
@with_options
def diff(source: Source, options: Options, base: str, others: tuple[str, ...]) -> int:
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
    from traceanalyzer.diff.captures import to_json
    from traceanalyzer.diff.sources import SourceOptions, read_sides
    from traceanalyzer.report.comparison import DIFF_WRITERS, DiffReport, show
    from traceanalyzer.report.comparison.rows import plain_name
    from traceanalyzer.report.writers import fingerprint, gates, whole

    wanted = options.wanted_gates(of_comparison=True)
    sources = SourceOptions(source.load, source.is_of_all, bool(wanted), source.jobs)
    named = (base, *others)
    snapshots = snapshot_sides(named, follows_links=source.follow_links)
    try:
        sides = read_sides(named, sources)
    except InputError:
        if not snapshots:
            raise
        return gate_code(compare_alone(snapshots, named, wanted, options, source.follow_links), options.inconclusive)
    comparison = compare(sides, force=options.force)
    outcomes = gate.check_comparison(wanted, comparison, sources.load.ranks)
    memory = {}
    try:
        memory = {sides[place].label: one for place, one in changes(snapshots, named).items()} if snapshots else {}
    except InputError as error:
        options.console.print(f"Skipped: {error}", highlight=False, markup=False)
    report = DiffReport(comparison, outcomes, command_line(), memory)
    name = "_".join(["diff", *(plain_name(side.label) for side in sides)])
    # File systems count bytes.
    target = options.output or Path("reports", name.encode()[:200].decode(errors="ignore"))
    captures = [to_json(capture) for side in sides for capture in side.captures]
    content = fingerprint(__version__, comparison.runs, comparison.is_forced, captures, outcomes)
    with whole(target, " and ".join(named), content, force=options.force) as draft:
        formats = (*options.formats, "json") if options.formats and options.as_json else options.formats or FORMATS
        files = [path for form in dict.fromkeys(formats) for path in DIFF_WRITERS[form](report, draft.path)]
        files += gates.write(outcomes, draft.path, inconclusive_fails=options.inconclusive != 0)
        files = draft.final(files)
    show(report, options.console)
    gates.show(outcomes, options.console)
    page = print_written(files, target, draft.notes, options)
    if options.open_page:
        click.launch(str(page))
    return gate_code(outcomes, options.inconclusive)


# Runs that later ones are compared with.


@click.group(cls=Group)
def baseline() -> None:
    """Save a run's tables to compare later runs with.

    Baselines are files of some 100 kB in .traceanalyzer/baselines of the current folder; commit them, or keep them as
    a build artifact.

    \b
    Examples:
      analyze-traces baseline save main profile/ddp
      analyze-traces diff baseline:main profile/new
      analyze-traces baseline trend
    """  # noqa: D301 - click wants the character itself


@baseline.command()
@click.argument("name")
@click.argument("run", metavar="FOLDER")
@side_options
@talk_options
@with_options
def save(source: Source, options: Options, name: str, run: str) -> None:
    """Save FOLDER (or several captures of one run, a+b+c) as baseline NAME."""
    from traceanalyzer.diff.sources import SourceOptions, baseline_path, read_side, save_baseline

    has_one = baseline_path(name).is_file()
    side = read_side(run, SourceOptions(source.load, source.is_of_all, jobs=source.jobs))
    path = save_baseline(name, side)
    say(options.console, f"Baseline{' replaced' if has_one else ''}: {path}")


@baseline.command("list")
@JSON
def list_(as_json: bool) -> None:
    """List the baselines of this folder, oldest first, with their main figures."""
    from traceanalyzer.report import trend

    found = trend.kept()
    if as_json:
        click.echo(json.dumps(trend.facts(found), indent=2))
    elif not found:
        click.echo("No baselines in .traceanalyzer/baselines; analyze-traces baseline save NAME FOLDER makes one.")
    else:
        trend.show_list(found, console_of())


@baseline.command("trend")
@click.argument("names", nargs=-1)
@option("--metric metrics NAME*", "Figure to follow, such as step_ns; repeatable (default: the main ones).")
@option("--output -o FOLDER", "Where to write.", default=Path("reports", "trend"))
@FORCE
@talk_options
@with_options
def trend_(options: Options, names: tuple[str, ...], metrics: tuple[str, ...]) -> None:
    """Show how figures changed over the baselines of this folder (or those named), by the date they were saved.

    Writes trend.html (a chart and a table for each figure), trend.csv and trend.json.
    """
    from traceanalyzer.report import trend
    from traceanalyzer.report.writers import fingerprint, whole

    found = trend.kept(names)
    if len([one for one in found if one.side is not None]) < 2:
        raise InputError("a trend needs at least two baselines; analyze-traces baseline list shows them")
    table, doubts = trend.trend(found, metrics or trend.FIGURES), trend.doubts(found)
    content = fingerprint(__version__, table.to_json(), names)
    assert options.output is not None, "it has a default"
    with whole(options.output, "baselines", content, force=options.force) as draft:
        written = draft.final(trend.write(table, doubts, draft.path))
    trend.show_trend(table, doubts, options.console)
    for one in found:
        if one.why_not:
            click.echo(f"Left out: {one.why_not}", err=True)
    say(options.console, f"Report: {written[0]}")


@baseline.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove baseline NAME."""
    from traceanalyzer.diff.sources import baseline_path

    path = baseline_path(name)
    if not path.is_file():
        raise InputError(f"{path}: no such baseline")
    path.unlink()
