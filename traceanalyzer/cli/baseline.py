"""`analyze-traces baseline`: runs that later ones are compared with."""

from typing import Any

import click

from traceanalyzer.cli.options import STEPS, part_options, talk_options
from traceanalyzer.errors import InputError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def baseline() -> None:
    """Keep a run's small tables to compare later runs with.

    Baselines are files of some 100 kB in .traceanalyzer/baselines of the current folder; commit them, or keep them as
    a build artifact.

    \b
    Examples:
      analyze-traces baseline save main profile/ddp
      analyze-traces diff baseline:main profile/new
    """  # noqa: D301 - click wants the character itself


@baseline.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name")
@click.argument("source")
@click.option("--select", type=click.Choice(["latest", "all"]), default="latest", show_default=True,
              help="Which of several runs in a folder; all takes each as a repeat.")  # fmt: skip
@click.option("--steps", default="complete", show_default=True, metavar="WHICH",
              help=f"Steps to keep: {STEPS}. Of these the complete ones that all ranks have.")  # fmt: skip
@part_options
@talk_options
def save(name: str, source: str, **options: Any) -> None:
    """Save SOURCE (a folder of traces, or several captures a+b+c) as baseline NAME."""
    from traceanalyzer.cli.diff import source_options
    from traceanalyzer.diff.sources import baseline_path, read_side, save_baseline

    has_one = baseline_path(name).is_file()
    path = save_baseline(name, read_side(source, source_options(options)))
    if not options["quiet"]:
        click.echo(f"Baseline{' replaced' if has_one else ''}: {path}")


@baseline.command("list", context_settings={"help_option_names": ["-h", "--help"]})
def list_() -> None:
    """List the baselines of this folder."""
    from traceanalyzer.diff.sources import BASELINES

    for path in sorted(BASELINES.glob("*.json")):
        click.echo(path.stem)


@baseline.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name")
def remove(name: str) -> None:
    """Remove baseline NAME."""
    from traceanalyzer.diff.sources import baseline_path

    path = baseline_path(name)
    if not path.is_file():
        raise InputError(f"{path}: no such baseline")
    path.unlink()
