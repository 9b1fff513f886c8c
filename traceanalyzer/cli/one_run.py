"""One run: analyzed, judged by gates, shown and written."""

import os
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer import __version__
from traceanalyzer.cli import debug
from traceanalyzer.cli.options import (
    DONE,
    PARTIAL,
    command_line,
    gate_code,
    print_written,
    progress,
    say,
)
from traceanalyzer.errors import Failure, InputError, TraceAnalyzerError, sentences, warn
from traceanalyzer.execution import later
from traceanalyzer.files.bounds import give_back_memory, spilling_to

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rich.console import Console

    from traceanalyzer.cli.snapshots import Memory
    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.doctor import Examination
    from traceanalyzer.gate import Outcome
    from traceanalyzer.job.run_info import RunInfo, Wiring
    from traceanalyzer.loading import LoadOptions
    from traceanalyzer.report.contents import Report
    from traceanalyzer.scale import Summary


# The run's topology and NCCL logs: named, beside the traces, or in run.json.


def examined(
    topo: Path | None, nccl_logs: tuple[Path, ...], folder: Path, info: "RunInfo | None"
) -> "tuple[Examination | None, Wiring | None, tuple[str, ...]]":
    """The doctor's examination, what it tells of the ranks, and notes on files that could not be read.

    Raises:
        InputError: a file that was named cannot be read.
    """
    from traceanalyzer.doctor.inputs import texts_beside

    in_run = None if info is None or not info.topology else ("run.json", info.topology)
    found_topo, found_logs = texts_beside(folder) if folder.is_dir() else (None, [])
    is_named = topo is not None or bool(nccl_logs)
    if not (is_named or found_topo or found_logs or in_run):
        return None, None, ()
    from traceanalyzer.doctor import examine
    from traceanalyzer.doctor.transports import wiring

    try:
        examination = examine(topo=topo or found_topo or in_run, nccl_logs=nccl_logs or found_logs)
    except InputError as error:
        if is_named:
            raise
        return None, None, (f"{error}; the report goes on without it.",)
    known = wiring(examination.case.topology, examination.case.logs)
    # A topology alone says nothing about a run: the doctor's page needs a log.
    return examination if examination.case.logs else None, known, examination.notes


# The run itself.


_CHANGED = "Files changed while they were read: figures may mix both versions; run it again."


@dataclass(frozen=True, slots=True)
class Command:
    """What all runs of one command share.

    Attributes:
        found: all runs in the folder.
        load: what of them is read.
        options: the command line.
        console: where to print.
        errors: the runs, newest first, that could not be analyzed, by name; grows while runs are tried.
    """

    found: "Found"
    load: "LoadOptions"
    options: dict[str, Any]
    console: "Console"
    errors: list[tuple[str, TraceAnalyzerError]]


def report_run(command: Command, run: "Run", label: str, target: Path) -> tuple[Path, int]:
    """Analyze one run, write it, print its summary; returns the page (or the folder) and the exit code.

    Raises:
        InputError: none of it can be analyzed.
    """
    from traceanalyzer.report.writers.write import whole, write

    options, load, console, clock = command.options, command.load, command.console, debug.Clock()
    formats = options["formats"] or ("html", "csv", "json")
    content = _content(command, run, label)
    source = os.path.commonpath([str(capture.place.resolve()) for capture in run.captures])
    with spilling_to(load.cache), whole(target, source, content, force=options["force"]) as draft:
        made, examination, memory, complete = _analysed(command, run, label, clock)
        outcomes = _judged(command, made, label)
        clock.mark("findings and gates")
        # Before the page is drawn, which takes as long as the analyses of a small trace, and what only it shows.
        unshown = _shown(command, made, outcomes)
        summary, made = complete()
        clock.mark("other analyses")
        give_back_memory()  # else what the analyses freed lies between what they made
        failures = [*made.failures, *unshown]
        files = write(made, draft.path, formats, failures=failures, processes=_beside(run, options))
        clock.mark("write")
        warn(failures[len(made.failures) :])
        if outcomes:  # else neither gates nor comparisons are loaded
            from traceanalyzer.report.writers import gates

            files += gates.write(outcomes, draft.path)
        if options["debug"]:
            debug.write(options["debug"], debug.measured(clock, failures, made.results))
        if "parquet" in formats:
            from traceanalyzer.export.events import write_rank
            from traceanalyzer.scale import visit

            events = partial(write_rank, folder=draft.path / "events")
            visit(run, load, summary.claims, events, jobs=options["jobs"])
        if memory[0]:
            from traceanalyzer.report import snapshots

            files += snapshots.write(memory[0], draft.path, label, command_line())
        if examination:
            from traceanalyzer.report import examination as doctors_page

            files += doctors_page.write(examination, draft.path, command_line())
        files = draft.final(files)
    notes = [*draft.notes, *([_CHANGED] if content != _content(command, run, label) else [])]
    page = print_written(files, target, notes, options, console)
    if memory[0]:
        snapshots.show(memory[0], console, memory[1])
        say(console, f"Memory: {target / 'memory.html'}")
    else:
        say(console, *memory[1])
    if examination:
        doctors_page.show_troubles(examination, console)
        say(console, f"Doctor: {target / 'doctor.html'}")
    tracebacks = [one.traceback for one in failures] if options["verbose"] else [_MORE] if failures else []
    for text in (*(f"Partial report: {sentence}" for sentence in sentences(failures)), *tracebacks):
        click.echo(text, err=True)
    return page, gate_code(outcomes) or (PARTIAL if failures else DONE)


_MORE = "Run again with --verbose for the details to report."


def _analysed(
    command: Command, run: "Run", label: str, clock: debug.Clock
) -> "tuple[Report, Examination | None, Memory, Callable[[], tuple[Summary, Report]]]":
    """The report with the Results that are shown first, the doctor's and snapshots' part, and what completes it."""
    from traceanalyzer.job import run_info
    from traceanalyzer.job.model_state import completed
    from traceanalyzer.job.run_info import known_step, logged_memory
    from traceanalyzer.loading import other_runs
    from traceanalyzer.report import kept_report
    from traceanalyzer.scale import summarise

    found, load, options = command.found, command.load, command.options
    info, info_notes = run_info.read_or_note(run.info)
    place = Path(os.path.commonpath([capture.path.parent.absolute() for capture in run.captures]))
    examination, wiring, examination_notes = examined(options["topo"], options["nccl_logs"], place, info)
    known = run_info.thresholds(info)
    if model := completed(known.get("trained_model"), options["model"]):
        known["trained_model"] = model
    known |= options["thresholds"]
    step, step_notes = known_step(known, [place], options["unprofiled_step"])
    known = logged_memory(place) | known | step
    known["wiring"] = wiring
    analysed = partial(summarise, found, run, load, jobs=options["jobs"], is_guarded=True, **known)
    entry = kept_report.place_of(found, run, load, known)
    findings = None
    if cached := kept_report.kept(entry, analysed):
        summary, findings = cached
    else:
        with progress(command.console, len(run.captures)) as advance:
            summary = analysed(progress=advance, first=cache(partial(_first, options)))
    clock.mark("read and analyse")
    from traceanalyzer.report.build import build

    notes = (*_of_newer_runs(command, run), *_without_host(summary, options), *info_notes, *examination_notes)
    remarks = (*(other_runs(found, run) if options["select"] == "latest" else ()), *step_notes)
    made = build(summary, label, notes, remarks, command_line(), info, findings)
    memory: Memory = ((), ())
    if options["snapshots"]:
        from traceanalyzer.cli.snapshots import memory_beside

        memory = memory_beside(options["snapshots"], run, command.found.runs, made.results["steps"].table)
    made = replace(made, snapshots=memory[1])

    def keep(whole: "Summary") -> None:
        if entry and not cached:
            again = kept_report.place_of(found, run, load, known)
            later(partial(kept_report.keep, entry, again, whole, made.findings), processes=_beside(run, options))

    return made, examination, memory, partial(_completed, command, run, summary, made, keep)


def _first(options: dict[str, Any]) -> "Collection[str]":
    """Results that the summary shows; none where it may show any. Loads what judges and shows them."""
    import traceanalyzer.report.build  # noqa: F401 - loaded, not used
    from traceanalyzer.findings import results_of_kinds
    from traceanalyzer.report.writers.terminal import SHOWN

    return () if options["gates"] or options["top"] else {*results_of_kinds(), *SHOWN}


def _completed(
    command: Command, run: "Run", summary: "Summary", made: "Report", keep: "Callable[[Summary], None]"
) -> "tuple[Summary, Report]":
    """All Results of the run, with timelines of the ranks that findings name, and the report with them."""
    from traceanalyzer.findings import named_ranks
    from traceanalyzer.report.build import with_results
    from traceanalyzer.scale import with_timelines

    whole = summary.rest(made.failures) if summary.rest else summary
    whole = with_timelines(whole, run, command.load, named_ranks(made.findings), jobs=command.options["jobs"])
    if "replay" in whole.results:
        whole.results["replay"].let_go()
    keep(whole)
    return whole, with_results(made, whole.results, whole.failures if summary.rest else made.failures)


def _beside(run: "Run", options: dict[str, Any]) -> int:
    from traceanalyzer.execution import processes_beside

    return processes_beside([capture.path for capture in run.captures], options["jobs"])


def _judged(command: Command, made: "Report", label: str) -> "list[Outcome]":
    """The outcome of each gate."""
    if not command.options["gates"]:
        return []
    from traceanalyzer import gate

    integrity = made.results["integrity"].to_frame() if "integrity" in made.results else None
    lack = gate.lack_of_ranks(made.results["ranks"].to_frame(), command.load.ranks, made.skipped, integrity)
    return gate.check_run(command.options["gates"], made.results, label, lack=lack)


def _shown(command: Command, made: "Report", outcomes: "list[Outcome]") -> list[Failure]:
    """Print the summary, the longest kernels if asked for, and the gates; returns what could not be printed."""
    from traceanalyzer.report.writers import terminal

    failures = list(terminal.show_guarded(made, command.console))
    if command.options["top"]:
        terminal.top_show(made, command.options["top"], command.console)
    if outcomes:
        from traceanalyzer.report.writers import gates

        gates.show(outcomes, command.console)
    return failures


def _of_newer_runs(command: Command, run: "Run") -> list[str]:
    """Newer runs that cannot be analyzed, if only the latest one is wanted."""
    from traceanalyzer.loading import name_of

    runs, is_latest = command.found.runs, command.options["select"] == "latest"
    newer = [name_of(one) for one in runs[runs.index(run) + 1 :]] if is_latest else []
    pairs = zip(reversed(newer), command.errors, strict=False)
    return [f"{name}, which is newer, cannot be analyzed: {error}" for name, (_, error) in pairs]


def _without_host(summary: "Summary", options: dict[str, Any]) -> tuple[str, ...]:
    """A note on ranks whose host `--hosts` does not name."""
    from traceanalyzer.meaning.vocabulary import numbered

    hosts, ranks = options["thresholds"].get("hosts"), summary.results["ranks"].table["rank"].tolist()
    unnamed = [] if hosts is None else [rank for rank in ranks if rank not in hosts]
    return (f"--hosts names no host of {numbered('rank', unnamed)}.",) if unnamed else ()


def _content(command: Command, run: "Run", label: str) -> str:
    """Identifies the report: these files as they are, read with these options."""
    from traceanalyzer.report.writers.write import fingerprint

    options = command.options
    beside = [path for path in (run.info, options["hosts_file"]) if path]
    files = [*(one.path for one in run.captures), *beside]
    return fingerprint(__version__, label, command.load, options["limits"], files=files)
