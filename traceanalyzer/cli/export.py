"""`analyze-traces export`: all ranks in one Perfetto file, or a cut of the traces themselves."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from traceanalyzer.cli.options import (
    FOLDER,
    FORCE,
    Options,
    Source,
    command,
    input_options,
    option,
    talk_options,
    with_options,
)
from traceanalyzer.cli.output import of_files, of_run, print_notes, refuse_others, say

if TYPE_CHECKING:
    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run

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
@with_options
def export(source: Source, options: Options, *, kineto: bool) -> None:
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
    found, label, default = source.find_traces()
    ending = "_cut" if kineto else "" if source.is_of_all else SUFFIX
    base = options.output or default.with_name(f"{default.name}{ending}")
    for number, run in enumerate(found.runs if source.is_of_all else found.runs[-1:]):
        target = base / f"run_{number}" if source.is_of_all else base
        if kineto:
            line, notes = _cut(found, run, target, source, force=options.force)
        else:
            path = target.with_name(f"{target.name}{SUFFIX}") if source.is_of_all else target
            line, notes = _drawn(found, run, path, label, source, options)
        print_notes(notes, options.console)
        say(options.console, line)


def _cut(found: "Found", run: "Run", folder: Path, source: Source, *, force: bool) -> tuple[str, list[str]]:
    from traceanalyzer.errors import UsageError
    from traceanalyzer.export.kineto_cut import MADE_BY, cut
    from traceanalyzer.files.whole import whole_files
    from traceanalyzer.loading import other_runs
    from traceanalyzer.meaning.columns import size_text
    from traceanalyzer.scale import each_file

    for path in sorted(folder.glob("rank_*.pt.trace.json.gz")):
        refuse_others(path, MADE_BY, force=force)
    with whole_files(folder) as drafts:
        cuts = each_file(run, partial(cut, options=source.load, folder=drafts), jobs=source.jobs)
        written = [path for paths in cuts for path in paths]
        if not written:
            raise UsageError("--ranks and --steps leave nothing to write")
        size = size_text(sum(path.stat().st_size for path in written))
    notes = [*(() if source.is_of_all else other_runs(found, run)), *of_files(found.skipped)]
    return f"Traces: {folder} ({len(written)} of {len(run.captures)} files, {size})", notes


def _drawn(
    found: "Found", run: "Run", path: Path, label: str, source: Source, options: Options
) -> tuple[str, list[str]]:
    from traceanalyzer.export import perfetto
    from traceanalyzer.meaning.columns import size_text
    from traceanalyzer.scale import visit

    refuse_others(path, perfetto.MADE_BY.encode(), force=options.force)
    summary = source.analysed(found, run, options.console, names=perfetto.NEEDED)
    show = partial(visit, run, source.load, summary.claims, jobs=source.jobs)
    notes = of_run(found, run, summary, is_one_of_all=source.is_of_all)
    return f"Perfetto: {path} ({size_text(perfetto.write(summary.results, path, run.label or label, show))})", notes
