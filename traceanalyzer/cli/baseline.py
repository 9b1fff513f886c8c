"""`analyze-traces baseline`: runs that later ones are compared with."""

import json
from pathlib import Path
from typing import Any

import click

from traceanalyzer.cli.diff import side_options, source_options
from traceanalyzer.cli.options import FORCE, JSON, Group, console_of, option, say, talk_options
from traceanalyzer.errors import InputError


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
@click.argument("source", metavar="FOLDER")
@side_options
@talk_options
def save(name: str, source: str, **options: Any) -> None:
    """Save FOLDER (or several captures of one run, a+b+c) as baseline NAME."""
    from traceanalyzer.diff.sources import baseline_path, read_side, save_baseline

    has_one = baseline_path(name).is_file()
    path = save_baseline(name, read_side(source, source_options(options)))
    say(console_of(options), f"Baseline{' replaced' if has_one else ''}: {path}")


@baseline.command("list")
@JSON
def list_(as_json: bool) -> None:
    """List the baselines of this folder, oldest first, with their main figures."""
    from traceanalyzer.diff.trend import kept
    from traceanalyzer.report import trend as report_trend

    found = kept()
    if as_json:
        click.echo(json.dumps(report_trend.facts(found), indent=2))
    elif not found:
        click.echo("No baselines in .traceanalyzer/baselines; analyze-traces baseline save NAME FOLDER makes one.")
    else:
        report_trend.show_list(found, console_of({}))


@baseline.command("trend")
@click.argument("names", nargs=-1)
@option("--metric metrics NAME*", "Figure to follow, such as step_ns; repeatable (default: the main ones).")
@option("--output -o FOLDER", "Where to write.", default=Path("reports", "trend"))
@FORCE
@talk_options
def trend_(names: tuple[str, ...], metrics: tuple[str, ...], output: Path, **options: Any) -> None:
    """Show how figures changed over the baselines of this folder (or those named), by the date they were saved.

    Writes trend.html (a chart and a table for each figure), trend.csv and trend.json.
    """
    from traceanalyzer import __version__
    from traceanalyzer.diff.trend import FIGURES, doubts, kept, trend
    from traceanalyzer.report import trend as report_trend
    from traceanalyzer.report.writers.write import fingerprint, whole

    console = console_of(options)
    found = kept(names=names)
    if len([one for one in found if one.side is not None]) < 2:
        raise InputError("a trend needs at least two baselines; analyze-traces baseline list shows them")
    table = trend(found, metrics or FIGURES)
    with whole(output, "baselines", fingerprint(__version__, table.to_json(), names), force=options["force"]) as draft:
        written = draft.final(report_trend.write(table, doubts(found), draft.path))
    report_trend.show_trend(table, doubts(found), console)
    for one in found:
        if one.why_not:
            click.echo(f"Left out: {one.why_not}", err=True)
    say(console, f"Report: {written[0]}")


@baseline.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove baseline NAME."""
    from traceanalyzer.diff.sources import baseline_path

    path = baseline_path(name)
    if not path.is_file():
        raise InputError(f"{path}: no such baseline")
    path.unlink()
