"""`analyze-traces report`, which is also what `analyze-traces` does without a command; and `demo`."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer import __version__
from traceanalyzer.cli.options import (
    CANNOT_JUDGE,
    DONE,
    FOLDER,
    FORCE,
    GATE_FAILED,
    JSON,
    OPEN,
    PARTIAL,
    UNPROFILED_STEP,
    USAGE_OR_INPUT,
    Options,
    Source,
    command,
    format_option,
    gate_code,
    gate_options,
    input_options,
    model_option,
    option,
    rare,
    read_thresholds,
    surroundings_options,
    talk_options,
    with_options,
)
from traceanalyzer.cli.output import (
    DEBUG_FILE,
    DEBUG_MARK,
    Clock,
    command_line,
    measured,
    print_written,
    refuse_others,
    say,
    snapshots_in,
    write_debug,
)
from traceanalyzer.errors import Failure, InputError, TraceAnalyzerError, sentences, warn
from traceanalyzer.execution import IS_PROGRAM, later, processes_beside
from traceanalyzer.files.bounds import give_back_memory, spilling_to
from traceanalyzer.samples import SAMPLES, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.doctor import Examination
    from traceanalyzer.gate import Gate, Outcome
    from traceanalyzer.job.run_info import RunInfo, Wiring
    from traceanalyzer.report.contents import Report
    from traceanalyzer.scale import Summary
    from traceanalyzer.snapshots import Examined

_GRAVITY = (DONE, PARTIAL, CANNOT_JUDGE, GATE_FAILED, USAGE_OR_INPUT)
"""Exit codes of the runs of one command: the gravest is the command's."""


@command()
@FOLDER
@input_options(is_main=True)
@option("--output -o FOLDER", "Where to write (default: reports/<name>; for traces in a/profile/x, a/reports/x).")
@format_option(("html", "csv", "json", "parquet", "md", "xlsx"), "html, csv and json")
@option("--top N", "Also print the N kernels and operators that take most GPU time.")
@JSON
@OPEN
@gate_options
@rare("--scheduler ADDRESS", "Read ranks on a Dask cluster: tcp://host:8786, or local for workers on this machine.")
@rare("--hosts hosts_file FILE", "Host and rack of each rank: CSV of rank,host,rack, or JSON (docs/many_ranks.md).")
@rare("--threshold limits NAME=VALUE*", "Set a threshold of an analysis, such as idle_short_ns=3000; repeatable.")
@model_option
@UNPROFILED_STEP
@surroundings_options
@FORCE
@rare("--debug FILE", "Write versions, timings and counts, but nothing from the traces, to attach to an issue.")
@talk_options
@with_options
def report(source: Source, options: Options, top: int | None, scheduler: str | None, debug: Path | None) -> int:
    """Analyze a run and write its report (the default command).

    Writes summary.html, summary.csv, summary.json and tables/<analysis>.csv; with --fail-on also gate.xml (JUnit)
    and gate.md. With --json, prints summary.json.
    """
    from traceanalyzer.scale import set_up_process

    if IS_PROGRAM.get():
        set_up_process()
    gates, thresholds = options.wanted_gates(), read_thresholds(source.limits)
    refuse_others(debug, DEBUG_MARK, force=options.force)
    DEBUG_FILE.set(debug)
    snapshots = snapshots_in(source.folder, source.trace_dir, follows_links=source.follow_links)
    try:
        found, label, default = source.find_traces()
    except InputError:
        if not snapshots:
            raise
        from traceanalyzer.cli.snapshots import report_alone

        return report_alone(snapshots, source, options, gates)
    if gates and not source.is_of_all:
        from traceanalyzer.loading import refuse_several_runs

        refuse_several_runs(found)
    if source.hosts_file:
        from traceanalyzer.job.run_info import read_hosts

        thresholds = {"hosts": read_hosts(source.hosts_file), **thresholds}
    workers: AbstractContextManager[Any] = nullcontext(source.jobs)
    if scheduler is not None:
        from traceanalyzer.scale.work import connected

        workers = connected(scheduler, source.jobs)
    with workers as jobs:
        asked = _Asked(found, replace(source, jobs=jobs), options, gates, thresholds, snapshots, top)
        done = _reported(asked, label, options.output or default)
    if options.open_page:
        click.launch(str(done[-1][0]))
    codes = [code for _, code in done] + [USAGE_OR_INPUT for _ in asked.errors if source.is_of_all]
    return max(codes, key=_GRAVITY.index)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all runs of one command share.

    Attributes:
        found: all runs in the folder.
        source: what of them is read.
        options: where the report goes.
        gates: conditions on each.
        thresholds: of analyses, as the user sets them.
        snapshots: files of memory snapshots in the folder.
        top: how many kernels and operators are printed.
        errors: the runs, newest first, that could not be analyzed, by name; grows while runs are tried.
    """

    found: "Found"
    source: Source
    options: Options
    gates: "Sequence[Gate]"
    thresholds: dict[str, Any]
    snapshots: "Sequence[Path]"
    top: int | None
    errors: list[tuple[str, TraceAnalyzerError]] = field(default_factory=list)


def _reported(asked: _Asked, label: str, base: Path) -> list[tuple[Path, int]]:
    """Page and exit code of each run; of the latest one alone, or of the next if that cannot be analyzed."""
    from traceanalyzer.loading import name_of

    runs = asked.found.runs
    if asked.source.is_of_all:
        targets = [(run, f"{label}/{name_of(run)}", base / f"run_{at}_{run.began}") for at, run in enumerate(runs)]
    else:
        targets = [(run, f"{label}/{run.label}" if run.label else label, base) for run in reversed(runs)]
    done = []
    for run, name, target in targets:
        try:
            done.append(_OneRun(asked, run, name).report(target))
        except InputError as error:  # the other runs may be good
            asked.errors.append((name, error))
        if done and not asked.source.is_of_all:
            break
    if not done:
        raise asked.errors[0][1]
    for name, why in asked.errors if asked.source.is_of_all else ():
        click.echo(f"Error: {name}: {why}", err=True)
    return done


# One run: analyzed, judged by gates, shown and written.


_CHANGED = "Files changed while they were read: figures may mix both versions; run it again."

_MORE = "Run again with --verbose for the details to report."


@dataclass(frozen=True, slots=True)
class _OneRun:
    """One run of a command, and its name."""

    asked: _Asked
    run: "Run"
    label: str

    def report(self, target: Path) -> tuple[Path, int]:
        """Analyze it, write it, print its summary; returns the page (or the folder) and the exit code.

        Raises:
            InputError: none of it can be analyzed.
        """
        from traceanalyzer.report.writers import whole, write

        source, options, run, clock = self.asked.source, self.asked.options, self.run, Clock()
        formats = options.formats or (("html", "csv", "json") if not options.as_json else ("html", "csv"))
        content = self._content()
        of_traces = os.path.commonpath([str(capture.place.resolve()) for capture in run.captures])
        with spilling_to(source.load.cache), whole(target, of_traces, content, force=options.force) as draft:
            made, examination, snapshots, complete = self._analysed(clock)
            outcomes = self._judged(made)
            clock.mark("findings and gates")
            # Before the page is drawn, which takes as long as the analyses of a small trace, and what only it shows.
            unshown = self._shown(made, outcomes)
            summary, made = complete()
            clock.mark("other analyses")
            give_back_memory()  # else what the analyses freed lies between what they made
            failures = [*made.failures, *unshown]
            wanted = (*formats, "json") if options.as_json else formats
            files = write(made, draft.path, wanted, failures=failures, processes=self._processes)
            clock.mark("write")
            warn(failures[len(made.failures) :])
            if outcomes:  # else neither gates nor comparisons are loaded
                from traceanalyzer.report.writers import gates

                files += gates.write(outcomes, draft.path)
            if debug := DEBUG_FILE.get():
                write_debug(debug, measured(clock, failures, made.results))
            if "parquet" in formats:
                from traceanalyzer.report.writers.tables import write_events
                from traceanalyzer.scale import visit

                events = partial(write_events, folder=draft.path / "events")
                visit(run, source.load, summary.claims, events, jobs=source.jobs)
            if snapshots:
                from traceanalyzer.report import snapshots as memory_page

                files += memory_page.write(snapshots, draft.path, self.label, command_line())
            if examination:
                from traceanalyzer.report import examination as doctors_page

                files += doctors_page.write(examination, draft.path, command_line())
            files = draft.final(files)
        notes = [*draft.notes, *([_CHANGED] if content != self._content() else [])]
        page = print_written(files, target, notes, options)
        if snapshots:
            memory_page.show(snapshots, options.console, made.snapshots)
            say(options.console, f"Memory: {target / 'memory.html'}")
        else:
            say(options.console, *made.snapshots)
        if examination:
            doctors_page.show_troubles(examination, options.console)
            say(options.console, f"Doctor: {target / 'doctor.html'}")
        tracebacks = [one.traceback for one in failures] if options.verbose else [_MORE] if failures else []
        for text in (*(f"Partial report: {sentence}" for sentence in sentences(failures)), *tracebacks):
            click.echo(text, err=True)
        return page, gate_code(outcomes) or (PARTIAL if failures else DONE)

    def _analysed(
        self, clock: Clock
    ) -> "tuple[Report, Examination | None, Sequence[Examined], Callable[[], tuple[Summary, Report]]]":
        """The report with the Results that are shown first, the doctor's and snapshots' part, and what completes it."""
        from traceanalyzer.job.model_state import completed
        from traceanalyzer.job.run_info import facts_of_run
        from traceanalyzer.loading import other_runs
        from traceanalyzer.report.contents import build, keep_run, kept_place, kept_run

        asked, run, source = self.asked, self.run, self.asked.source
        files = [capture.path for capture in run.captures]
        of_run = facts_of_run(run.info, files, source.unprofiled_step, asked.thresholds)
        examination, wiring, examination_notes = examined(source.topo, source.nccl_logs, of_run.folder, of_run.info)
        known = {**of_run.known, "wiring": wiring}
        if model := completed(known.get("trained_model"), source.model):
            known["trained_model"] = model
        entry = kept_place(asked.found, run, source.load, known)
        summary, findings = kept_run(entry) or (None, None)
        is_kept = summary is not None
        if summary is None:
            first = cache(partial(_shown_first, asked))
            console = asked.options.console
            summary = source.analysed(asked.found, run, console, is_guarded=True, first=first, **known)
        clock.mark("read and analyse")
        notes = (*self._of_newer_runs(), *_without_host(summary, asked.thresholds), *of_run.notes, *examination_notes)
        remarks = (*(() if source.is_of_all else other_runs(asked.found, run)), *of_run.remarks)
        made = build(summary, self.label, notes, remarks, command_line(), of_run.info, findings)
        snapshots: Sequence[Examined] = ()
        if asked.snapshots:
            from traceanalyzer.cli.snapshots import memory_beside

            snapshots, told = memory_beside(asked.snapshots, run, asked.found.runs)
            made = replace(made, snapshots=told)

        def complete() -> "tuple[Summary, Report]":
            """All Results of the run, with timelines of the ranks that findings name, and the report with them."""
            from traceanalyzer.findings import named_ranks
            from traceanalyzer.report.contents import with_results
            from traceanalyzer.scale import with_timelines

            whole = summary.rest(made.failures) if summary.rest else summary
            whole = with_timelines(whole, run, source.load, named_ranks(made.findings), jobs=source.jobs)
            if "replay" in whole.results:
                whole.results["replay"].let_go()
            if entry and not is_kept:
                again = kept_place(asked.found, run, source.load, known)
                later(partial(keep_run, entry, again, whole, made.findings), processes=self._processes)
            return whole, with_results(made, whole.results, whole.failures if summary.rest else made.failures)

        return made, examination, snapshots, complete

    @property
    def _processes(self) -> int:
        return processes_beside([capture.path for capture in self.run.captures], self.asked.source.jobs)

    def _judged(self, made: "Report") -> "list[Outcome]":
        """The outcome of each gate."""
        if not self.asked.gates:
            return []
        from traceanalyzer import gate

        integrity = made.results["integrity"].to_frame() if "integrity" in made.results else None
        ranks = made.results["ranks"].to_frame()
        lack = gate.lack_of_ranks(ranks, self.asked.source.load.ranks, made.skipped, integrity)
        return gate.check_run(self.asked.gates, made.results, self.label, lack=lack)

    def _shown(self, made: "Report", outcomes: "list[Outcome]") -> list[Failure]:
        """Print the summary, the longest kernels if asked for, and the gates; returns what could not be printed."""
        from traceanalyzer.report.writers import text

        console = self.asked.options.console
        failures = list(text.show_guarded(made, console))
        if self.asked.top:
            text.top_show(made, self.asked.top, console)
        if outcomes:
            from traceanalyzer.report.writers import gates

            gates.show(outcomes, console)
        return failures

    def _of_newer_runs(self) -> list[str]:
        """Newer runs that cannot be analyzed, if only the latest one is wanted."""
        from traceanalyzer.loading import name_of

        runs = self.asked.found.runs
        newer = [] if self.asked.source.is_of_all else [name_of(one) for one in runs[runs.index(self.run) + 1 :]]
        pairs = zip(reversed(newer), self.asked.errors, strict=False)
        return [f"{name}, which is newer, cannot be analyzed: {error}" for name, (_, error) in pairs]

    def _content(self) -> str:
        """Identifies the report: these files as they are, read with these options."""
        from traceanalyzer.report.writers import fingerprint

        source = self.asked.source
        files = [*(one.path for one in self.run.captures), *filter(None, (self.run.info, source.hosts_file))]
        return fingerprint(__version__, self.label, source.load, source.limits, files=files)


def _shown_first(asked: _Asked) -> "Collection[str]":
    """Results that the summary shows; none where it may show any. Loads what judges and shows them."""
    import traceanalyzer.report.contents  # noqa: F401 - loaded, not used
    from traceanalyzer.findings import results_of_kinds
    from traceanalyzer.report.writers.text import SHOWN

    return () if asked.gates or asked.top else {*results_of_kinds(), *SHOWN}


def _without_host(summary: "Summary", thresholds: dict[str, Any]) -> tuple[str, ...]:
    """A note on ranks whose host `--hosts` does not name."""
    from traceanalyzer.meaning.vocabulary import numbered

    hosts, ranks = thresholds.get("hosts"), summary.results["ranks"].table["rank"].tolist()
    unnamed = [] if hosts is None else [rank for rank in ranks if rank not in hosts]
    return (f"--hosts names no host of {numbered('rank', unnamed)}.",) if unnamed else ()


def examined(
    topo: Path | None, nccl_logs: tuple[Path, ...], folder: Path, info: "RunInfo | None"
) -> "tuple[Examination | None, Wiring | None, tuple[str, ...]]":
    """The doctor's examination of the run's topology and NCCL logs: named, beside the traces, or in run.json.

    With it what it tells of the ranks, and notes on files that could not be read.

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
    from traceanalyzer.doctor.rules import wiring

    try:
        examination = examine(topo=topo or found_topo or in_run, nccl_logs=nccl_logs or found_logs)
    except InputError as error:
        if is_named:
            raise
        return None, None, (f"{error}; the report goes on without it.",)
    known = wiring(examination.case.topology, examination.case.logs)
    # A topology alone says nothing about a run: the doctor's page needs a log.
    return examination if examination.case.logs else None, known, examination.notes


# A report of a sample capture.


@command()
@click.argument("name", type=click.Choice(SAMPLES), default=SAMPLES[0])
@option("--output -o FOLDER", "Where to write.", default=Path("reports", "demo"))
@OPEN
def demo(name: str, output: Path, open_page: bool) -> int:
    """Analyze a sample capture; needs no GPU and no traces.

    pp_1f1b is a two-stage pipeline on two H200 GPUs whose stages are unbalanced. simple_ddp and pytorch_ddp are the
    same model with data parallelism, without and with overlap.
    """
    click.echo(f"$ analyze-traces {sample(name)}\n")
    arguments = [str(sample(name)), "--output", str(output), *(["--open"] if open_page else [])]
    code: int = report.main(arguments, standalone_mode=False)
    click.echo(
        "\nNext, analyze your own traces (docs/recording.md), or try on samples:\n"
        f"  analyze-traces diff {sample('simple_ddp')} {sample('pytorch_ddp')}\n"
        f"  analyze-traces what-if {sample()} --rank 1=2x\n"
        f"  analyze-traces export {sample(name)}"
    )
    return code
