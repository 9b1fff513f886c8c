"""What the report command does with a run's topology and NCCL logs: named, beside the traces, or in run.json."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceanalyzer.cli.options import PLACE, Decorator

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from traceanalyzer.doctor import Examination
    from traceanalyzer.job.run_info import RunInfo
    from traceanalyzer.job.wiring import Wiring


def surroundings_options(function: "Callable[..., Any]") -> "Callable[..., Any]":
    """Where the run's topology and logs are."""
    import click

    options: tuple[Decorator, ...] = (
        click.option(
            "--topo", type=PLACE, metavar="FILE",
            help="What `nvidia-smi topo -m` printed on the run's machine (default: beside the traces, or in run.json).",
        ),
        click.option(
            "--nccl-log", "nccl_logs", type=PLACE, multiple=True, metavar="FILE",
            help="The run's log of NCCL_DEBUG=INFO, or a folder of them; repeatable (default: beside the traces).",
        ),
    )  # fmt: skip
    for decorate in reversed(options):
        function = decorate(function)
    return function


def model_option(function: "Callable[..., Any]") -> "Callable[..., Any]":
    """What is known of the model that was trained."""
    import click

    return click.option(
        "--model", metavar="NAME=VALUE,…", callback=_entries,
        help="Of the trained model, to say what memory it should take: params=7e9,layers=32,d_model=4096,seq=4096,"
        "batch=1,dp=8 (default: as run.json has it; docs/memory.md).",
    )(function)  # fmt: skip


def _entries(_context: Any, _option: Any, text: str | None) -> dict[str, object]:
    from traceanalyzer.job.model_state import entries

    return entries(text) if text else {}


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
    from traceanalyzer.report.examination import as_json, page

    command = shlex.join(["analyze-traces", *sys.argv[1:]])
    return page.write(examination, folder, command) + as_json.write(examination, folder)


def say(examination: "Examination | None", target: Path, console: "Console") -> None:
    """Print what is wrong, and where the page is."""
    if examination is None or not examination.case.logs:
        return
    from traceanalyzer.report.examination import terminal

    terminal.show_troubles(examination, console)
    console.print(f"Doctor: {target / 'doctor.html'}", highlight=False, soft_wrap=True, markup=False)
