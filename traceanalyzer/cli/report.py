"""`analyze-traces report`, which is also what `analyze-traces` does without a command."""

import os
import shlex
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer import __version__
from traceanalyzer.cli import debug, surroundings
from traceanalyzer.cli.codes import DONE, GATE_FAILED, PARTIAL, USAGE_OR_INPUT
from traceanalyzer.cli.options import (
    FORCE,
    PLACE,
    find_traces,
    gate_options,
    input_options,
    load_options,
    talk_options,
    wanted_gates,
)
from traceanalyzer.cli.own_files import refuse_others
from traceanalyzer.cli.snapshots import memory_beside, report_alone, say, snapshots_in
from traceanalyzer.cli.snapshots import write as write_memory
from traceanalyzer.errors import InputError, TraceAnalyzerError

if TYPE_CHECKING:
    from rich.console import Console

    from traceanalyzer.cli.snapshots import Memory
    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.doctor import Examination
    from traceanalyzer.failures import Failure
    from traceanalyzer.gate import Gate, Outcome
    from traceanalyzer.loading import LoadOptions
    from traceanalyzer.report.contents import Report

_GRAVITY = (DONE, PARTIAL, GATE_FAILED, USAGE_OR_INPUT)
"""Exit codes of the runs of one command: the gravest is the command's."""

FORMATS = ("html", "csv", "json", "parquet", "md", "xlsx")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", required=False, type=PLACE)
@input_options
@click.option("--scheduler", metavar="ADDRESS",
              help="Read ranks on a Dask cluster: tcp://host:8786, or local for workers on this machine.")  # fmt: skip
@click.option("--hosts", "hosts_file", type=PLACE, metavar="FILE",
              help="Which host and rack each rank ran on: CSV of rank,host,rack, or JSON (see docs).")  # fmt: skip
@click.option("--output", "-o", type=PLACE, metavar="FOLDER",
              help="Where to write (default: reports/<name of the run>).")  # fmt: skip
@click.option("--format", "formats", multiple=True, type=click.Choice(FORMATS), metavar="NAME",
              help=f"What to write: {', '.join(FORMATS)}; repeatable (default: html, csv and json).")  # fmt: skip
@click.option("--plotlyjs", type=click.Choice(["inline", "directory"]), default="inline", show_default=True,
              help="Carry the charts' script in the page, or in one file beside the reports' folders.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), metavar="N",
              help="Print the N kernels and operators that take most GPU time, too.")  # fmt: skip
@click.option("--open", "open_page", is_flag=True, help="Open the report in the browser.")
@surroundings.model_option
@surroundings.surroundings_options
@FORCE
@click.option("--debug", type=PLACE, metavar="FILE",
              help="Write versions, timings and counts, and nothing of the traces, to attach to an issue.")  # fmt: skip
@gate_options
@talk_options
def report(folder: Path | None, **options: Any) -> int:
    """Analyse a run and write its report (the default command).

    Writes summary.html, summary.csv, summary.json and tables/<analysis>.csv; with --fail-on also gate.xml (JUnit)
    and gate.md.
    """
    from rich.console import Console

    console = Console(quiet=options["quiet"])
    options["gates"] = wanted_gates(options)
    refuse_others(options["debug"], debug.MARK, force=options["force"])
    snapshots = snapshots_in(folder, options["trace_dir"], follows_links=options["follow_links"])
    try:
        found, label = find_traces(
            folder,
            options["trace_dir"],
            options["trace_files"],
            options["rank_regex"],
            follows_links=options["follow_links"],
        )
    except InputError:
        if not snapshots:
            raise
        return _memory_alone(snapshots, folder or options["trace_dir"], options, console)
    load, options["snapshots"] = load_options(options), snapshots
    options["thresholds"] = _hosts(options["hosts_file"])
    targets = _targets(found, label, options["select"], options["output"])
    done, errors = [], list[tuple[str, TraceAnalyzerError]]()
    with _workers(options["scheduler"], options["jobs"]) as options["jobs"]:
        for run, name, target in targets:
            try:
                done.append(_one(found, run, load, name, target, errors, options, console))
            except InputError as error:  # the other runs may be good
                errors.append((name, error))
                continue
            if options["select"] == "latest":
                break
    if not done:
        raise errors[0][1]
    if options["select"] == "all":
        for name, why in errors:
            click.echo(f"Error: {name}: {why}", err=True)
    if options["open_page"]:
        click.launch(str(done[-1][0]))
    codes = [code for _, code in done] + [USAGE_OR_INPUT for _ in errors if options["select"] == "all"]
    return max(codes, key=_GRAVITY.index)


def _workers(scheduler: str | None, jobs: int | None) -> Any:
    """A context that gives the workers of a cluster, or so many processes, to read the ranks."""
    if scheduler is None:
        return nullcontext(jobs)
    from traceanalyzer.scale.dask_cluster import connected

    return connected(scheduler, jobs)


_CHANGED = "Files changed while they were read: figures may be of two states of them; run it again."


def _hosts(path: Path | None) -> dict[str, Any]:
    """What `--hosts` says, as analyses take it; nothing without it."""
    from traceanalyzer.job.hosts import read_hosts

    return {"hosts": read_hosts(path)} if path else {}


def _memory_alone(snapshots: list[Path], place: Path, options: dict[str, Any], console: "Console") -> int:
    """The report of a folder that has memory snapshots and no traces."""
    page, code = report_alone(snapshots, place, options, console)
    if options["open_page"]:
        click.launch(str(page))
    return code


def _targets(found: "Found", label: str, select: str, output: Path | None) -> "list[tuple[Run, str, Path]]":
    """Runs to analyse, each with its name and folder to write; for the latest one the others after it, newest first."""
    from traceanalyzer.loading import name_of

    base = output or Path("reports", label)
    if select == "latest":
        return [(run, f"{label}/{run.label}" if run.label else label, base) for run in reversed(found.runs)]
    return [
        (run, f"{label}/{name_of(run)}", base / f"run_{number}_{run.began}") for number, run in enumerate(found.runs)
    ]


def _one(
    found: "Found", run: "Run", load: "LoadOptions", label: str, target: Path,
    errors: "list[tuple[str, TraceAnalyzerError]]", options: dict[str, Any], console: "Console",
) -> tuple[Path, int]:  # fmt: skip
    """Analyse one run, write it, print its summary; returns the page (or the folder) and the exit code."""
    from rich.markup import escape

    from traceanalyzer.report.writers import folder

    content = _content(run, load, label, options["hosts_file"])
    with folder.whole(target, _source(run), content, force=options["force"]) as draft:
        outcomes, files, failures, examination, memory = _analysed(
            found, run, load, label, draft.path, target.resolve().parent, errors, options, console
        )
        written = draft.final([*files, *surroundings.write(examination, draft.path)])
    changed = content != _content(run, load, label, options["hosts_file"])
    for note in (*draft.notes, *([_CHANGED] if changed else [])):
        console.print(f"[yellow]Note:[/] {escape(note)}", highlight=False, soft_wrap=True)
    if options["verbose"]:
        console.print(*(f"wrote {escape(str(path))}" for path in written), sep="\n", highlight=False)
    page = next((path for path in written if path.suffix == ".html"), target)
    console.print(f"{'Files in' if page == target else 'Report'}: {escape(str(page))}", highlight=False, soft_wrap=True)
    say(*memory, target, console)
    surroundings.say(examination, target, console)
    _show_failures(failures, is_verbose=options["verbose"])
    if outcomes:
        from traceanalyzer import gate

        if gate.has_failed(outcomes):
            return page, GATE_FAILED
    return page, PARTIAL if failures else DONE


def _show_failures(failures: "list[Failure]", *, is_verbose: bool) -> None:
    """On standard error: which parts a bug of ours keeps from the report."""
    from traceanalyzer.failures import sentences

    for sentence in sentences(failures):
        click.echo(f"Partial report: {sentence}", err=True)
    for failure in failures if is_verbose else ():
        click.echo(failure.traceback, err=True)
    if failures and not is_verbose:
        click.echo("Run again with --verbose for the details to report.", err=True)


def _analysed(
    found: "Found", run: "Run", load: "LoadOptions", label: str, folder: Path, beside: Path,
    errors: "list[tuple[str, TraceAnalyzerError]]", options: dict[str, Any], console: "Console",
) -> "tuple[list[Outcome], list[Path], list[Failure], Examination | None, Memory]":  # fmt: skip
    """Show and write the run's report: what became of gates, files, what could not be computed, doctor, snapshots."""
    from traceanalyzer.failures import warn
    from traceanalyzer.findings import named_ranks
    from traceanalyzer.job import run_info
    from traceanalyzer.report.build import build
    from traceanalyzer.report.writers import terminal, top
    from traceanalyzer.report.writers.write import write
    from traceanalyzer.scale import summarise, with_timelines

    formats = options["formats"] or ("html", "csv", "json")
    clock = debug.Clock()
    info, info_notes = run_info.read_or_note(run.info)
    place = Path(os.path.commonpath([str(capture.path.parent.absolute()) for capture in run.captures]))
    examination, wiring, examination_notes = surroundings.examined(options["topo"], options["nccl_logs"], place, info)
    with progress(console, len(run.captures)) as advance:
        known = surroundings.with_model(run_info.thresholds(info), options["model"])
        summary = summarise(
            found, run, load, jobs=options["jobs"], progress=advance, is_guarded=True, wiring=wiring,
            **known, **options["thresholds"],
        )  # fmt: skip
    clock.mark("read and analyse")
    others = _of_other_runs(found, run, errors) if options["select"] == "latest" else ()
    notes = (*others, *info_notes, *examination_notes)
    made = build(summary, label, notes, shlex.join(["analyze-traces", *sys.argv[1:]]), info)
    memory, told = memory_beside(options["snapshots"], made.results["steps"].table)
    whole = with_timelines(summary, run, load, named_ranks(made.findings), jobs=options["jobs"])
    drawn = {name: whole.results[name] for name in ("timeline", "host_events")}
    made = replace(made, results=made.results | drawn, snapshots=told)
    outcomes = _checked(options["gates"], made, load, label, errors)
    clock.mark("findings and gates")
    # Before the page is drawn, which takes as long as the analyses of a small trace.
    failures = [*made.failures, *terminal.show_guarded(made, console)]
    if options["top"]:
        top.show(made, options["top"], console)
    if outcomes:
        from traceanalyzer.report.writers import gates

        gates.show(outcomes, console)
    written = write(made, folder, formats, plotlyjs=options["plotlyjs"], failures=failures, beside=beside)
    clock.mark("write")
    warn(failures[len(made.failures) :])
    if outcomes:
        written += gates.write(outcomes, folder)
    if options["debug"]:
        debug.write(options["debug"], clock, failures, made.results)
    if "parquet" in formats:
        from traceanalyzer.export.events import write_rank
        from traceanalyzer.scale import visit

        visit(run, load, summary.claims, partial(write_rank, folder=folder / "events"), jobs=options["jobs"])
    written += write_memory(memory, folder, label) if memory else []
    return outcomes, written, failures, examination, (memory, told)


def _checked(
    gates: "list[Gate]", made: "Report", load: "LoadOptions", label: str, errors: "list[tuple[str, TraceAnalyzerError]]"
) -> "list[Outcome]":
    """What becomes of the gates, if there are any."""
    if not gates:
        return []
    from traceanalyzer import gate
    from traceanalyzer.report.words import care

    return gate.check_run(
        gates, made.results, label,
        lack=gate.lack_of_ranks(made.results["ranks"].to_frame(), load.ranks, made.skipped) or _of_newer(errors),
        doubts=care.doubted(made.results),
    )  # fmt: skip


def _of_other_runs(found: "Found", run: "Run", errors: "list[tuple[str, TraceAnalyzerError]]") -> tuple[str, ...]:
    """Which other runs there are, and which newer ones hold nothing that can be analysed."""
    from traceanalyzer.loading import name_of, other_runs

    newer = [name_of(one) for one in found.runs[found.runs.index(run) + 1 :]]
    said = [
        f"{name}, which is newer, cannot be analysed: {error}"
        for name, (_, error) in zip(reversed(newer), errors, strict=False)
    ]
    return (*said, *other_runs(found, run))


def _of_newer(errors: "list[tuple[str, TraceAnalyzerError]]") -> str | None:
    """Why gates on this run would pass for another: the newest one is not it."""
    return f"a newer run cannot be analysed ({errors[0][1]})" if errors else None


def _source(run: "Run") -> str:
    """The folder of the run's files, or its only file."""
    places = [str(capture.place.resolve()) for capture in run.captures]
    return os.path.commonpath(places)


def _content(run: "Run", load: "LoadOptions", label: str, hosts: Path | None) -> str:
    from traceanalyzer.report.writers.folder import fingerprint

    files = [capture.path for capture in run.captures] + [path for path in (run.info, hosts) if path]
    return fingerprint(__version__, label, load, files=files)


def progress(console: "Console", files: int) -> Any:
    """A context that gives a function to call as files are done; a bar only on a terminal, for several files."""
    from contextlib import contextmanager

    from rich.progress import Progress

    @contextmanager
    def shown() -> Any:
        with Progress(console=console, transient=True, disable=not console.is_terminal or files < 2) as bar:
            task = bar.add_task("Reading traces", total=files)
            yield lambda done, _all: bar.update(task, completed=done)

    return shown()
