"""`analyze-traces report`, which is also what `analyze-traces` does without a command."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.cli import debug
from traceanalyzer.cli.files import refuse_others, snapshots_in
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
    command,
    console_of,
    find_traces,
    format_option,
    gate_options,
    input_options,
    load_options,
    model_option,
    option,
    rare,
    read_thresholds,
    surroundings_options,
    talk_options,
    wanted_gates,
)
from traceanalyzer.errors import InputError
from traceanalyzer.execution import IS_PROGRAM

if TYPE_CHECKING:
    from traceanalyzer.cli.one_run import Command
    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run

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
@click.option("--plotlyjs", hidden=True)
@rare("--threshold limits NAME=VALUE*", "Set a threshold of an analysis, such as idle_short_ns=3000; repeatable.")
@model_option
@UNPROFILED_STEP
@surroundings_options
@FORCE
@rare("--debug FILE", "Write versions, timings and counts, but nothing from the traces, to attach to an issue.")
@talk_options
def report(folder: Path | None, **options: Any) -> int:
    """Analyze a run and write its report (the default command).

    Writes summary.html, summary.csv, summary.json and tables/<analysis>.csv; with --fail-on also gate.xml (JUnit)
    and gate.md. With --json, prints summary.json.
    """
    from traceanalyzer.cli.one_run import Command
    from traceanalyzer.scale import set_up_process

    if IS_PROGRAM.get():
        set_up_process()
    console = console_of(options)
    if options["as_json"]:
        options["formats"] = (*(options["formats"] or ("html", "csv")), "json")
    options["gates"] = wanted_gates(options)
    of_analyses = read_thresholds(options["limits"])
    refuse_others(options["debug"], debug.MARK, force=options["force"])
    debug.ASKED.set(options["debug"])
    snapshots = snapshots_in(folder, options["trace_dir"], follows_links=options["follow_links"])
    try:
        found, label, default = find_traces(folder, options)
    except InputError:
        if not snapshots:
            raise
        from traceanalyzer.cli.snapshots import report_alone

        page, code = report_alone(snapshots, folder or options["trace_dir"], options, console)
        if options["open_page"]:
            click.launch(str(page))
        return code
    if options["gates"] and options["select"] == "latest":
        from traceanalyzer.loading import refuse_several_runs

        refuse_several_runs(found)
    from traceanalyzer.job.run_info import read_hosts

    hosts = {"hosts": read_hosts(options["hosts_file"])} if options["hosts_file"] else {}
    options["snapshots"], options["thresholds"] = snapshots, hosts | of_analyses
    asked = Command(found, load_options(options), options, console, [])
    workers: AbstractContextManager[Any] = nullcontext(options["jobs"])
    if options["scheduler"] is not None:
        from traceanalyzer.scale.work import connected

        workers = connected(options["scheduler"], options["jobs"])
    with workers as options["jobs"]:
        done = _reported(asked, _targets(found, label, options["select"], options["output"] or default))
    if options["open_page"]:
        click.launch(str(done[-1][0]))
    codes = [code for _, code in done] + [USAGE_OR_INPUT for _ in asked.errors if options["select"] == "all"]
    return max(codes, key=_GRAVITY.index)


def _reported(asked: "Command", targets: "list[tuple[Run, str, Path]]") -> list[tuple[Path, int]]:
    """Page and exit code of each run; of the latest one alone, or of the next if that cannot be analyzed."""
    from traceanalyzer.cli.one_run import report_run

    done, is_latest = [], asked.options["select"] == "latest"
    for run, name, target in targets:
        try:
            done.append(report_run(asked, run, name, target))
        except InputError as error:  # the other runs may be good
            asked.errors.append((name, error))
            continue
        if is_latest:
            break
    if not done:
        raise asked.errors[0][1]
    for name, why in () if is_latest else asked.errors:
        click.echo(f"Error: {name}: {why}", err=True)
    return done


def _targets(found: "Found", label: str, select: str, base: Path) -> "list[tuple[Run, str, Path]]":
    """Runs to analyze, each with its name and output folder; newest first if only the latest is wanted."""
    from traceanalyzer.loading import name_of

    if select == "latest":
        return [(run, f"{label}/{run.label}" if run.label else label, base) for run in reversed(found.runs)]
    return [
        (run, f"{label}/{name_of(run)}", base / f"run_{number}_{run.began}") for number, run in enumerate(found.runs)
    ]
