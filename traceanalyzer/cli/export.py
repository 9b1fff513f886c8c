"""`analyze-traces export`: all ranks in one Perfetto file, or a cut of the traces themselves."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceanalyzer.cli.files import of_files, of_run, refuse_others
from traceanalyzer.cli.options import (
    FOLDER,
    FORCE,
    command,
    console_of,
    find_traces,
    input_options,
    load_options,
    option,
    print_notes,
    progress,
    say,
    talk_options,
)

if TYPE_CHECKING:
    from rich.console import Console

    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.loading import LoadOptions

SUFFIX = ".pftrace.gz"


@command()
@FOLDER
@input_options()
@option(
    "--kineto",
    "Write PyTorch profiler traces instead, one per rank, cut to the chosen ranks and steps, without environment, host "
    "name and folders.",
)
@option(
    "--output -o PLACE",
    "File to write: compressed if it ends in .gz, JSON if in .json or .json.gz (default: "
    f"reports/<name>{SUFFIX}); a folder with --select all or --kineto.",
)
@FORCE
@talk_options
def export(folder: Path | None, **options: Any) -> None:
    """Write all ranks as one Perfetto file, or a cut of the traces.

    One process per rank, with CPU threads (ranges, operators, Python frames, API calls), arrows from launches to
    kernels, one track per stream with waits split from transfers, collectives linked across ranks, idle time by cause,
    the critical path, steps and counters. Open the file at ui.perfetto.dev.

    \b
    Examples:
      analyze-traces export profile/ddp
      analyze-traces export profile/ddp --steps last --output step.pftrace.gz
      analyze-traces export profile/ddp --kineto --ranks 0,3 --steps 2:3 --output cut
    """  # noqa: D301 - click wants the character itself
    console = console_of(options)
    found, label, default = find_traces(folder, options)
    load, is_all = load_options(options), options["select"] == "all"
    ending = "_cut" if options["kineto"] else "" if is_all else SUFFIX
    base = options["output"] or default.with_name(f"{default.name}{ending}")
    for number, run in enumerate(found.runs if is_all else found.runs[-1:]):
        target = base / f"run_{number}" if is_all else base
        if options["kineto"]:
            line, notes = _cut(found, run, load, target, options)
        else:
            path = target.with_name(f"{target.name}{SUFFIX}") if is_all else target
            line, notes = _drawn(found, run, load, path, label, console, options)
        print_notes(notes, console)
        say(console, line)


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
        size = size_text(sum(path.stat().st_size for path in written))
    notes = [*(() if options["select"] == "all" else other_runs(found, run)), *of_files(found.skipped)]
    return f"Traces: {folder} ({len(written)} of {len(run.captures)} files, {size})", notes


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
    notes = of_run(found, run, summary, is_one_of_all=options["select"] == "all")
    return f"Perfetto: {path} ({size_text(perfetto.write(summary.results, path, run.label or label, show))})", notes
