"""One run of those that a command found: analyzed, judged, shown and written."""

import gzip
import os
import zlib
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
    PLACE,
    command_line,
    gate_code,
    options_of,
    print_written,
    progress,
)
from traceanalyzer.cli.snapshots import memory_beside, say
from traceanalyzer.cli.snapshots import write as write_memory
from traceanalyzer.errors import UsageError
from traceanalyzer.files.unnamed import give_back_memory, laid_in
from traceanalyzer.forks import later

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from rich.console import Console

    from traceanalyzer.cli.snapshots import Memory
    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.doctor import Examination
    from traceanalyzer.errors import TraceAnalyzerError
    from traceanalyzer.failures import Failure
    from traceanalyzer.gate import Outcome
    from traceanalyzer.job.run_info import RunInfo, Wiring
    from traceanalyzer.loading import LoadOptions
    from traceanalyzer.model import Skipped, TraceSet
    from traceanalyzer.report.contents import Report
    from traceanalyzer.scale import Summary


# What the report command does with a run's topology and NCCL logs: named, beside the traces, or in run.json.


surroundings_options = options_of(
    click.option(
        "--topo", type=PLACE, metavar="FILE",
        help="What `nvidia-smi topo -m` printed on the run's machine (default: beside the traces, or in run.json).",
    ),
    click.option(
        "--nccl-log", "nccl_logs", type=PLACE, multiple=True, metavar="FILE",
        help="The run's log of NCCL_DEBUG=INFO, or a folder of them; repeatable (default: beside the traces).",
    ),
)  # fmt: skip
"""Where the run's topology and logs are."""


def _entries(_context: Any, _option: Any, text: str | None) -> dict[str, object]:
    from traceanalyzer.job.model_state import entries

    return entries(text) if text else {}


model_option = click.option(
    "--model", metavar="NAME=VALUE,…", callback=_entries,
    help="Of the trained model, to say what memory it should take: params=7e9,layers=32,d_model=4096,seq=4096,"
    "batch=1,dp=8 (default: as run.json has it; docs/memory.md).",
)  # fmt: skip
"""What is known of the model that was trained."""


def with_model(thresholds: dict[str, Any], told: dict[str, object]) -> dict[str, Any]:
    """What run.json says, with what the user says of the model over it."""
    from traceanalyzer.job.model_state import completed

    model = completed(thresholds.get("trained_model"), told)
    return thresholds | ({} if model is None else {"trained_model": model})


def examined(
    topo: Path | None, nccl_logs: tuple[Path, ...], folder: Path, info: "RunInfo | None"
) -> "tuple[Examination | None, Wiring | None, tuple[str, ...]]":
    """What the doctor says of them, what they tell of the ranks, and what could not be read of those that were found.

    Raises:
        InputError: one that was named cannot be read.
    """
    from traceanalyzer.doctor.inputs import texts_beside
    from traceanalyzer.errors import InputError

    found_topo, found_logs = texts_beside(folder) if folder.is_dir() else (None, [])
    is_named = topo is not None or bool(nccl_logs)
    if not (is_named or found_topo or found_logs or _of_run(info)):
        return None, None, ()
    from traceanalyzer.doctor import examine_texts
    from traceanalyzer.doctor.inputs import log_files, read_text
    from traceanalyzer.doctor.transports import wiring

    topo, logs = topo or found_topo, [path for place in nccl_logs for path in log_files(place)] or found_logs
    try:
        texts = [(path.name, read_text(path)) for path in logs]
        matrix = (topo.name, read_text(topo)) if topo is not None else _of_run(info)
        if matrix is None and not texts:
            return None, None, ()
        examination = examine_texts(topo=matrix, nccl_logs=texts)
    except InputError as error:
        if is_named:
            raise
        return None, None, (f"{error}; the report goes on without it.",)
    return examination, wiring(examination.case.topology, examination.case.logs), examination.notes


def _of_run(info: "RunInfo | None") -> tuple[str, str] | None:
    return None if info is None or not info.topology else ("run.json", info.topology)


def write(examination: "Examination | None", folder: Path) -> list[Path]:
    """The doctor's page and JSON, where a log was given: a topology alone says nothing of a run."""
    if examination is None or not examination.case.logs:
        return []
    from traceanalyzer.report import examination as report_examination

    return report_examination.write(examination, folder, command_line())


def surroundings_say(examination: "Examination | None", target: Path, console: "Console") -> None:
    """Print what is wrong, and where the page is."""
    if examination is None or not examination.case.logs:
        return
    from traceanalyzer.report import examination as report_examination

    report_examination.show_troubles(examination, console)
    console.print(f"Doctor: {target / 'doctor.html'}", highlight=False, soft_wrap=True, markup=False)


# One run of those that a command found: analysed, judged, shown and written.


_CHANGED = "Files changed while they were read: figures may be of two states of them; run it again."


@dataclass(frozen=True, slots=True)
class Command:
    """What all runs of one command share.

    Attributes:
        found: all that was found where the user pointed.
        load: what of it is read.
        options: the command line.
        console: where is printed.
        errors: the runs, newest first, that could not be analysed, by name; grows while runs are tried.
    """

    found: "Found"
    load: "LoadOptions"
    options: dict[str, Any]
    console: "Console"
    errors: "list[tuple[str, TraceAnalyzerError]]"


@dataclass(frozen=True, slots=True)
class _Written:
    """What became of a run: its files, its gates, what could not be computed, the doctor's and the snapshots' part."""

    files: list[Path]
    outcomes: "list[Outcome]"
    failures: "list[Failure]"
    examination: "Examination | None"
    memory: "Memory"


def report_run(command: Command, run: "Run", label: str, target: Path) -> tuple[Path, int]:
    """Analyse one run, write it, print its summary; returns the page (or the folder) and the exit code.

    Raises:
        InputError: nothing of it can be analysed.
    """
    from traceanalyzer.report.writers import write as writers_write

    content, marked = _content(command, run, label), _source(run)
    with (
        laid_in(command.load.cache),
        writers_write.whole(target, marked, content, force=command.options["force"]) as draft,
    ):
        made = _write(command, run, label, draft.path)
        files = draft.final([*made.files, *write(made.examination, draft.path)])
    changed = content != _content(command, run, label)
    notes = (*draft.notes, *([_CHANGED] if changed else []))
    page = print_written(files, target, notes, command.options, command.console)
    say(*made.memory, target, command.console)
    surroundings_say(made.examination, target, command.console)
    _show_failures(made.failures, is_verbose=command.options["verbose"])
    return page, gate_code(made.outcomes) or (PARTIAL if made.failures else DONE)


def _show_failures(failures: "list[Failure]", *, is_verbose: bool) -> None:
    """On standard error: which parts a bug of ours keeps from the report."""
    from traceanalyzer.failures import sentences

    for sentence in sentences(failures):
        click.echo(f"Partial report: {sentence}", err=True)
    for failure in failures if is_verbose else ():
        click.echo(failure.traceback, err=True)
    if failures and not is_verbose:
        click.echo("Run again with --verbose for the details to report.", err=True)


def _write(command: Command, run: "Run", label: str, folder: Path) -> _Written:
    """Analyse the run, show it and write it into the folder."""
    from traceanalyzer.failures import warn
    from traceanalyzer.report.writers import gates
    from traceanalyzer.report.writers.write import write

    options, clock = command.options, debug.Clock()
    formats = options["formats"] or ("html", "csv", "json")
    made, examination, memory, complete = _analysed(command, run, label, clock)
    outcomes = _judged(command, made, label)
    clock.mark("findings and gates")
    # Before the page is drawn, which takes as long as the analyses of a small trace, and what only it shows is made.
    unshown = _shown(command, made, outcomes)
    summary, made = complete()
    clock.mark("other analyses")
    give_back_memory()  # else what the analyses freed lies between what they made
    failures = [*made.failures, *unshown]
    files = write(made, folder, formats, failures=failures, processes=_beside(run, options))
    clock.mark("write")
    warn(failures[len(made.failures) :])
    files += gates.write(outcomes, folder)
    if options["debug"]:
        debug.write(options["debug"], clock, failures, made.results)
    if "parquet" in formats:
        from traceanalyzer.export.events import write_rank
        from traceanalyzer.scale import visit

        events = partial(write_rank, folder=folder / "events")
        visit(run, command.load, summary.claims, events, jobs=options["jobs"])
    files += write_memory(memory[0], folder, label) if memory[0] else []
    return _Written(files, outcomes, failures, examination, memory)


def _analysed(
    command: Command, run: "Run", label: str, clock: debug.Clock
) -> "tuple[Report, Examination | None, Memory, Callable[[], tuple[Summary, Report]]]":
    """The report, which may lack Results that are not shown first; what is returned last makes it whole."""
    from traceanalyzer.job import run_info
    from traceanalyzer.job.framework_logs import known_step
    from traceanalyzer.report import kept_report
    from traceanalyzer.scale import summarise

    found, load, options = command.found, command.load, command.options
    info, info_notes = run_info.read_or_note(run.info)
    place = Path(os.path.commonpath([capture.path.parent.absolute() for capture in run.captures]))
    examination, wiring, examination_notes = examined(options["topo"], options["nccl_logs"], place, info)
    known = with_model(run_info.thresholds(info), options["model"]) | options["thresholds"]
    step, step_notes = known_step(known, [place], options["unprofiled_step"])
    known |= step
    known["wiring"] = wiring
    analysed = partial(summarise, found, run, load, jobs=options["jobs"], is_guarded=True, **known)
    entry = kept_report.place_of(found, run, load, known)
    findings = None
    if held := kept_report.kept(entry, analysed):
        summary, findings = held
    else:
        with progress(command.console, len(run.captures)) as advance:
            summary = analysed(progress=advance, first=cache(partial(_first, options)))
    clock.mark("read and analyse")
    from traceanalyzer.report.build import build

    notes = (
        *_of_other_runs(command, run),
        *_without_host(summary, options),
        *info_notes,
        *step_notes,
        *examination_notes,
    )
    made = build(summary, label, notes, command_line(), info, findings)
    memory, told = memory_beside(options["snapshots"], run, command.found.runs, made.results["steps"].table)
    made = replace(made, snapshots=told)

    def keep(whole: "Summary") -> None:
        if entry and not held:
            again = kept_report.place_of(found, run, load, known)
            later(partial(kept_report.keep, entry, again, whole, made.findings), processes=_beside(run, options))

    return made, examination, (memory, told), partial(_completed, command, run, summary, made, keep)


def _first(options: dict[str, Any]) -> "Collection[str]":
    """Results that the summary is of; nothing where it may be of any. What judges and shows them is loaded here."""
    import traceanalyzer.report.build  # noqa: F401 - loaded, not used
    from traceanalyzer.findings import results_of_kinds
    from traceanalyzer.report.writers.terminal import SHOWN

    return () if options["gates"] or options["top"] else {*results_of_kinds(), *SHOWN}


def _completed(
    command: Command, run: "Run", summary: "Summary", made: "Report", keep: "Callable[[Summary], None]"
) -> "tuple[Summary, Report]":
    """All Results of the run, with what is drawn of the ranks that findings name, and its report with them."""
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
    from traceanalyzer.processes import processes_beside

    return processes_beside([capture.path for capture in run.captures], options["jobs"])


def _judged(command: Command, made: "Report", label: str) -> "list[Outcome]":
    """What becomes of the gates, if there are any."""
    if not command.options["gates"]:
        return []
    from traceanalyzer import gate

    integrity = made.results["integrity"].to_frame() if "integrity" in made.results else None
    lack = gate.lack_of_ranks(made.results["ranks"].to_frame(), command.load.ranks, made.skipped, integrity)
    return gate.check_run(command.options["gates"], made.results, label, lack=lack)


def _shown(command: Command, made: "Report", outcomes: "list[Outcome]") -> "list[Failure]":
    """Print the summary, what the user asked for beside it, and the gates; returns what could not be printed."""
    from traceanalyzer.report.writers import terminal

    failures = list(terminal.show_guarded(made, command.console))
    if command.options["top"]:
        terminal.top_show(made, command.options["top"], command.console)
    if outcomes:
        from traceanalyzer.report.writers import gates

        gates.show(outcomes, command.console)
    return failures


def _of_other_runs(command: Command, run: "Run") -> tuple[str, ...]:
    """Of the latest run: which others there are, and which newer ones hold nothing that can be analysed."""
    if command.options["select"] != "latest":
        return ()
    from traceanalyzer.loading import name_of, other_runs

    runs = command.found.runs
    newer = [name_of(one) for one in runs[runs.index(run) + 1 :]]
    said = [
        f"{name}, which is newer, cannot be analysed: {error}"
        for name, (_, error) in zip(reversed(newer), command.errors, strict=False)
    ]
    return (*said, *other_runs(command.found, run))


def _without_host(summary: "Summary", options: dict[str, Any]) -> tuple[str, ...]:
    """Says so of ranks whose host `--hosts` does not name."""
    from traceanalyzer.meaning.vocabulary import numbered

    hosts, ranks = options["thresholds"].get("hosts"), summary.results["ranks"].table["rank"].tolist()
    unnamed = [] if hosts is None else [rank for rank in ranks if rank not in hosts]
    return (f"--hosts names no host of {numbered('rank', unnamed)}.",) if unnamed else ()


def _source(run: "Run") -> str:
    """The folder of the run's files, or its only file."""
    return os.path.commonpath([str(capture.place.resolve()) for capture in run.captures])


def _content(command: Command, run: "Run", label: str) -> str:
    """What tells this report from others: of these files as they are, read so, with these limits."""
    from traceanalyzer.report.writers.write import fingerprint

    options = command.options
    beside = [path for path in (run.info, options["hosts_file"]) if path]
    files = [*(one.path for one in run.captures), *beside]
    return fingerprint(__version__, label, command.load, options["limits"], files=files)


# What commands that write no report say of the files: other runs, what was left out, ranks that are missing or cut.


def of_run(found: "Found", run: "Run", summary: "Summary", *, is_one_of_all: bool = False) -> list[str]:
    """Of a run that was analysed; where all are, one after the other, none is another's."""
    from traceanalyzer.loading import other_runs

    return [
        *(() if is_one_of_all else other_runs(found, run)),
        *summary.notes,
        *(f"The file of rank {rank} is cut off." for rank in sorted(summary.results["ranks"].cut_off)),
        *of_files(summary.skipped),
    ]


def of_traces(traces: "TraceSet") -> list[str]:
    """Of a run of which events are looked at."""
    return [*traces.notes, *of_files(traces.skipped)]


def of_files(skipped: "Iterable[Skipped]") -> list[str]:
    """Files that were left out, and why."""
    from traceanalyzer.report.words import skipped as listed

    return [f"Skipped {sentence}" for sentence in listed(skipped)]


# Single files that a command writes: one of another's is not replaced unless the user says so.


_HEAD_BYTES = 1 << 16


def refuse_others(path: Path | None, mark: bytes, *, force: bool) -> None:
    """Raise `UsageError` where a file is in the way that has no `mark` near its start, as this program's have.

    An empty file is nobody's work, and what is no file, such as /dev/null, keeps nothing.
    """
    if force or path is None or not path.is_file() or not path.stat().st_size:
        return
    if mark not in _head(path):
        raise UsageError(f"{path} is there already, and not of this command: name another, or replace it: --force")


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return gzip.open(file).read(_HEAD_BYTES) if is_packed else file.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""
