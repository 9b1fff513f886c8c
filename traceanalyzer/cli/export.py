"""`analyze-traces export`: all ranks as one file for Perfetto, or a cut of the traces themselves."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.cli import one_run
from traceanalyzer.cli.one_run import refuse_others
from traceanalyzer.cli.options import (
    PLACE,
    find_traces,
    input_options,
    load_options,
    print_notes,
    progress,
    talk_options,
)

if TYPE_CHECKING:
    from rich.console import Console

    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.loading import LoadOptions

SUFFIX = ".pftrace.gz"


@click.command()
@click.argument("folder", required=False, type=PLACE)
@input_options
@click.option("--kineto", is_flag=True,
              help="Write the PyTorch profiler's own traces instead, cut to the chosen ranks and steps, without the "
              "environment, the host's name and folders: a file a rank, for any other tool.")  # fmt: skip
@click.option("--output", "-o", type=PLACE, metavar="PLACE",
              help=f"File to write, compressed if it ends in .gz, as JSON if it ends in .json or .json.gz (default: "
              f"reports/<name of the run>{SUFFIX}); with --select all, and with --kineto, a folder.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that no export wrote.")
@talk_options
def export(folder: Path | None, **options: Any) -> None:
    """Write all ranks of a run as one file for Perfetto, or a cut of the traces themselves.

    A process for each rank: its host threads with ranges, operators, Python frames and API calls, arrows from each
    launch to its operation, a track a stream with waits told apart from transfers, collectives linked from rank to
    rank, idle time with its cause, the critical path, steps, counters. Open it at ui.perfetto.dev.

    \b
    Examples:
      analyze-traces export profile/ddp
      analyze-traces export --trace-dir profile/ddp --steps last --output step.pftrace.gz
      analyze-traces export profile/ddp --kineto --ranks 0,3 --steps 2:3 --output cut
    """  # noqa: D301 - click wants the character itself
    from rich.console import Console

    console = Console(quiet=options["quiet"])
    found, label, default = find_traces(folder, options)
    load, runs = load_options(options), found.runs if options["select"] == "all" else found.runs[-1:]
    several = len(runs) > 1 or options["select"] == "all"
    for number, run in enumerate(runs):
        if options["kineto"]:
            base = options["output"] or default.with_name(f"{default.name}_cut")
            target = base / f"run_{number}" if several else base
            said, notes = _cut(found, run, load, target, options)
        else:
            base = options["output"] or (default if several else default.with_name(f"{default.name}{SUFFIX}"))
            said, notes = _drawn(
                found, run, load, base / f"run_{number}{SUFFIX}" if several else base, label, console, options
            )
        print_notes(notes, console)
        console.print(said, highlight=False, soft_wrap=True, markup=False)


def _cut(
    found: "Found", run: "Run", load: "LoadOptions", folder: Path, options: dict[str, Any]
) -> tuple[str, list[str]]:
    from traceanalyzer.errors import UsageError
    from traceanalyzer.export.kineto_cut import MADE_BY, cut
    from traceanalyzer.files.whole import whole_files
    from traceanalyzer.loading import other_runs
    from traceanalyzer.meaning.columns import size_text
    from traceanalyzer.scale import each_file

    for path in sorted(folder.glob("rank_*.pt.trace.json.gz")):
        refuse_others(path, MADE_BY, force=options["force"])
    with whole_files(folder) as drafts:
        cuts = each_file(run, partial(cut, options=load, folder=drafts), jobs=options["jobs"])
        written = [path for paths in cuts for path in paths]
        if not written:
            raise UsageError("--ranks and --steps leave nothing to write")
        size = sum(path.stat().st_size for path in written)
    notes = [*(() if options["select"] == "all" else other_runs(found, run)), *one_run.of_files(found.skipped)]
    return f"Traces: {folder} ({len(written)} of {len(run.captures)} files, {size_text(size)})", notes


def _drawn(
    found: "Found", run: "Run", load: "LoadOptions", path: Path, label: str, console: "Console", options: dict[str, Any]
) -> tuple[str, list[str]]:
    from traceanalyzer.export import perfetto
    from traceanalyzer.meaning.columns import size_text
    from traceanalyzer.scale import summarise, visit

    refuse_others(path, perfetto.MADE_BY.encode(), force=options["force"])
    with progress(console, len(run.captures)) as advance:
        summary = summarise(found, run, load, names=perfetto.NEEDED, jobs=options["jobs"], progress=advance)
    show = partial(visit, run, load, summary.claims, jobs=options["jobs"])
    notes = one_run.of_run(found, run, summary, is_one_of_all=options["select"] == "all")
    return f"Perfetto: {path} ({size_text(perfetto.write(summary.results, path, run.label or label, show))})", notes
