"""`analyze-traces export`: all ranks as one file for Perfetto."""

from pathlib import Path
from typing import Any

import click

from traceanalyzer.cli.options import PLACE, find_traces, input_options, load_options, talk_options
from traceanalyzer.cli.report import progress

SUFFIX = ".perfetto.json.gz"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", required=False, type=PLACE)
@input_options
@click.option("--output", "-o", type=PLACE, metavar="FILE",
              help=f"What to write, compressed if it ends in .gz (default: reports/<name of the run>{SUFFIX}); "
              "with --select all a folder.")  # fmt: skip
@talk_options
def export(folder: Path | None, **options: Any) -> None:
    """Write all ranks of a run as one file for Perfetto.

    One process a rank, a track a stream; waits told apart from transfers, idle time with its cause, steps and ranges
    above them. Open it at ui.perfetto.dev or in chrome://tracing.

    \b
    Examples:
      analyze-traces export profile/ddp
      analyze-traces export --trace-dir profile/ddp --steps last --output step.perfetto.json.gz
    """  # noqa: D301 - click wants the character itself
    from rich.console import Console

    from traceanalyzer.export import perfetto
    from traceanalyzer.scale import summarise

    console = Console(quiet=options["quiet"])
    found, label = find_traces(folder, options["trace_dir"], options["trace_files"], options["rank_regex"])
    load, target = load_options(options), options["output"] or Path("reports", f"{label}{SUFFIX}")
    runs = {target: found.runs[-1]}
    if options["select"] == "all":
        base = options["output"] or Path("reports", label)
        runs = {base / f"run_{number}{SUFFIX}": run for number, run in enumerate(found.runs)}
    for path, run in runs.items():
        with progress(console, len(run.captures)) as advance:
            summary = summarise(found, run, load, names=perfetto.NEEDED, jobs=options["jobs"], progress=advance)
        events = perfetto.write(summary.results, path, run.label or label)
        console.print(f"Perfetto: {path} ({events:,} events)", highlight=False, soft_wrap=True, markup=False)
