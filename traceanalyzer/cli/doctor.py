"""`analyze-traces doctor`: what logs and dumps tell before, and without, a trace."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli.options import FORCE, JSON, PLACE, command_line
from traceanalyzer.errors import InputError, UsageError

if TYPE_CHECKING:
    from traceanalyzer.doctor import Examination

_STDIN = Path("-")

_SECONDS = 30
"""How long `nvidia-smi` may take."""


@click.command()
@click.argument("place", required=False, type=PLACE)
@click.option("--topo", type=PLACE, metavar="FILE", help="What `nvidia-smi topo -m` printed; - for standard input.")
@click.option("--nccl-log", "nccl_logs", type=PLACE, multiple=True, metavar="FILE",
              help="Logs of NCCL_DEBUG=INFO, or a folder of them; also what `ncclras` prints; repeatable.")  # fmt: skip
@click.option(
    "--flight-recorder", type=PLACE, metavar="DIR", help="Dumps of PyTorch's flight recorder (pickle or JSON)."
)
@click.option("--inspector", type=PLACE, metavar="DIR", help="NCCL Inspector's JSON files.")
@click.option(
    "--xpu-timer", type=PLACE, metavar="FILE", help="Saved metrics of xpu_timer (its port 18889), or a folder of them."
)
@click.option("--run", "is_run", is_flag=True, help="Call `nvidia-smi topo -m` on this machine.")
@click.option(
    "--follow-links", is_flag=True, help="Read what links in the folders name outside them; else they are skipped."
)
@FORCE
@JSON
@click.option(
    "--out", "--output", "-o", "out", type=PLACE, metavar="FOLDER", help="Write doctor.html and doctor.json there."
)
def doctor(
    place: Path | None, topo: Path | None, nccl_logs: tuple[Path, ...], flight_recorder: Path | None,
    inspector: Path | None, xpu_timer: Path | None, *,
    is_run: bool, as_json: bool, out: Path | None, force: bool, follow_links: bool,
) -> None:  # fmt: skip
    """Say what topology, NCCL logs and flight-recorder dumps tell: hangs, wrong paths, wrong settings.

    PLACE is a folder (or a file) that holds any of these, told apart by what stands in them; options name each. Each
    diagnosis comes with what it was seen by, what to do, and when it may not hold.

    \b
    Examples:
      analyze-traces doctor dumps/
      analyze-traces doctor --run
      analyze-traces doctor --topo topo.txt --nccl-log logs/
      analyze-traces doctor --flight-recorder /tmp/nccl_trace --out hang
      kubectl logs trainer-0 | analyze-traces doctor --nccl-log -
    """  # noqa: D301 - click wants the character itself
    from rich.console import Console

    from traceanalyzer.doctor.examination import examine_texts
    from traceanalyzer.doctor.inputs import Inputs
    from traceanalyzer.report import examination as report_examination

    if is_run and topo is not None:
        raise UsageError("--run and --topo both give a topology; name one")
    if [topo, *nccl_logs].count(_STDIN) > 1:
        raise UsageError("standard input (-) can be read once")
    given = Inputs(topo, nccl_logs, flight_recorder, inspector, xpu_timer)
    given = given if place is None else given.or_those_of(place, follows_links=follow_links)
    topology = _nvidia_smi() if is_run else None if given.topo is None else _texts(given.topo, follow_links)[0]
    examination = examine_texts(
        topo=topology,
        nccl_logs=[text for one in given.nccl_logs for text in _texts(one, follow_links)],
        flight_recorder=given.flight_recorder,
        inspector=given.inspector,
        xpu_timer=given.xpu_timer,
        follows_links=follow_links,
    )
    named = (place, topo, *nccl_logs, flight_recorder, inspector, xpu_timer)
    places = [one for one in named if one not in (None, _STDIN)]
    page = None if out is None else _write(examination, out, " and ".join(map(str, places)) or "this machine", force)
    if as_json:
        click.echo(report_examination.text(examination))
        return
    console = Console()
    report_examination.show(examination, console)
    if page is not None:
        console.print(f"Page: {page}", highlight=False, soft_wrap=True, markup=False)


def _texts(place: Path, follows_links: bool) -> list[tuple[str, str]]:
    from traceanalyzer.doctor.inputs import left_out, log_files, read_text

    for note in () if follows_links else left_out(place):
        click.echo(note, err=True)
    if place == _STDIN:
        return [("standard input", sys.stdin.buffer.read().decode("utf-8", errors="replace"))]
    return [(path.name, read_text(path)) for path in log_files(place, follows_links=follows_links)]


def _nvidia_smi() -> tuple[str, str]:
    command = ["nvidia-smi", "topo", "-m"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)  # noqa: S603 - fixed words
    except FileNotFoundError as error:
        raise InputError(
            "nvidia-smi is not on the PATH; run `nvidia-smi topo -m` where it is, and give it by --topo"
        ) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise InputError(f"nvidia-smi topo -m failed: {said[0] if said else error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"nvidia-smi topo -m did not answer within {_SECONDS} s; look at the driver (dmesg)"
        ) from error
    return "nvidia-smi topo -m", done.stdout


def _write(examination: "Examination", folder: Path, source: str, force: bool) -> Path:
    from traceanalyzer import __version__
    from traceanalyzer.report import examination as report_examination
    from traceanalyzer.report.writers.write import fingerprint, whole

    with whole(folder, source, fingerprint(__version__, examination.diagnoses), force=force) as draft:
        return draft.final(report_examination.write(examination, draft.path, command_line()))[0]
