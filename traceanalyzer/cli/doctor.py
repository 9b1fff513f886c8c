"""`analyze-traces doctor`: what logs and dumps show before, or without, a trace."""

import subprocess
import sys
from pathlib import Path

import click

from traceanalyzer.cli.options import (
    FORCE,
    JSON,
    LINKS,
    PLACE,
    command,
    option,
    options_of,
)
from traceanalyzer.cli.output import command_line, console_of, say
from traceanalyzer.errors import InputError, UsageError

_STDIN = Path("-")

_TIMEOUT_S = 30
"""For `nvidia-smi`."""

_INPUTS = options_of(
    option("--topo FILE", "Output of `nvidia-smi topo -m`; - for standard input."),
    option("--nccl-log nccl_logs FILE*", "NCCL_DEBUG=INFO log, a folder of them, or output of `ncclras`; repeatable."),
    option("--flight-recorder FOLDER", "Dumps of PyTorch's flight recorder (pickle or JSON)."),
    option(
        "--monitor --inspector --xpu-timer monitors FILE*",
        "NCCL Inspector's files (JSON or .prom), events of NCCL's "
        "profiler plugin, saved metrics of xpu_timer, or a folder of them; repeatable.",
    ),
    option("--run is_run", "Run `nvidia-smi topo -m` on this machine."),
)


@command()
@click.argument("place", required=False, type=PLACE, metavar="[FOLDER]")
@_INPUTS
@option("--output -o FOLDER", "Write doctor.html and doctor.json there.")
@JSON
@LINKS
@FORCE
def doctor(
    place: Path | None, topo: Path | None, nccl_logs: tuple[Path, ...], flight_recorder: Path | None,
    monitors: tuple[Path, ...], output: Path | None, *, is_run: bool, as_json: bool, force: bool, follow_links: bool,
) -> None:  # fmt: skip
    """Diagnose hangs, wrong network paths and wrong settings from logs and dumps.

    FOLDER (or a file) holds any of the inputs below; their content tells which is which. Each diagnosis comes with its
    evidence, what to do, and when it may not hold.

    \b
    Examples:
      analyze-traces doctor dumps/
      analyze-traces doctor --run
      analyze-traces doctor --topo topo.txt --nccl-log logs/
      analyze-traces doctor --flight-recorder /tmp/nccl_trace --output hang
      kubectl logs trainer-0 | analyze-traces doctor --nccl-log -
    """  # noqa: D301 - click wants the character itself
    from traceanalyzer import __version__
    from traceanalyzer.doctor.examination import examine
    from traceanalyzer.doctor.inputs import Inputs
    from traceanalyzer.report import examination as report
    from traceanalyzer.report.writers import fingerprint, whole

    if is_run and topo is not None:
        raise UsageError("--run and --topo both give a topology; name one")
    if [topo, *nccl_logs].count(_STDIN) > 1:
        raise UsageError("standard input (-) can be read only once")
    given = Inputs(topo, nccl_logs, flight_recorder, monitors)
    given = given if place is None else given.or_those_of(place, follows_links=follow_links)
    found = examine(
        topo=_nvidia_smi() if is_run else None if given.topo is None else _given(given.topo),
        nccl_logs=[_given(one) for one in given.nccl_logs],
        flight_recorder=given.flight_recorder,
        monitors=given.monitors,
        follows_links=follow_links,
    )
    console = console_of(as_json=as_json)
    if as_json:
        click.echo(report.text(found))
    else:
        report.show(found, console)
    if output is not None:
        named = (place, topo, *nccl_logs, flight_recorder, *monitors)
        source = " and ".join(str(one) for one in named if one not in (None, _STDIN)) or "this machine"
        with whole(output, source, fingerprint(__version__, found.diagnoses), force=force) as draft:
            page = draft.final(report.write(found, draft.path, command_line()))[0]
        say(console, f"Page: {page}")


def _given(place: Path) -> Path | tuple[str, str]:
    if place != _STDIN:
        return place
    return "standard input", sys.stdin.buffer.read().decode("utf-8", errors="replace")


def _nvidia_smi() -> tuple[str, str]:
    words = ["nvidia-smi", "topo", "-m"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)  # noqa: S603 - fixed words
    except FileNotFoundError as error:
        raise InputError(
            "nvidia-smi is not on the PATH; run `nvidia-smi topo -m` where it is, and pass its output with --topo"
        ) from error
    except subprocess.CalledProcessError as error:
        output = (error.stderr or error.stdout or "").strip().splitlines()
        raise InputError(f"nvidia-smi topo -m failed: {output[0] if output else error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"nvidia-smi topo -m did not answer within {_TIMEOUT_S} s; check the driver (dmesg)"
        ) from error
    return " ".join(words), done.stdout
