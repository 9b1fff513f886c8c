"""An examination: inputs read, put together, and what the rules say of them."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from traceanalyzer.discovery import LINK_OUT
from traceanalyzer.discovery.candidates import all_below, leads_out
from traceanalyzer.doctor.case import Case
from traceanalyzer.doctor.diagnosis import Diagnosis
from traceanalyzer.doctor.flight_recorder import read_flight_recorder
from traceanalyzer.doctor.hang import standing
from traceanalyzer.doctor.inspector import read_inspector
from traceanalyzer.doctor.nccl_reading import read_logs
from traceanalyzer.doctor.ras import RasReport, is_ras, parse_ras
from traceanalyzer.doctor.rules import diagnose
from traceanalyzer.doctor.topology import parse_topology
from traceanalyzer.doctor.xpu_timer import read_xpu_timer
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.files import bounded
from traceanalyzer.model.schema import printable

MOST_TEXT_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Examination:
    """What was given, and what it tells.

    Attributes:
        case: the inputs, read.
        diagnoses: what the rules say, the most severe first.
        notes: what could not be read, and why.
    """

    case: Case
    diagnoses: tuple[Diagnosis, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> tuple[str, ...]:
        """What to read first: the diagnoses of most severity, or that nothing is wrong with what was given."""
        worst = [one for one in self.diagnoses if one.severity != "info"]
        if worst:
            return tuple(one.diagnosis for one in worst[:3])
        return ("No rule finds anything wrong with what was given.", *(one.diagnosis for one in self.diagnoses[:2]))


def examine(
    *,
    topo: Path | None = None,
    nccl_logs: Sequence[Path] = (),
    flight_recorder: Path | None = None,
    inspector: Path | None = None,
    xpu_timer: Path | None = None,
) -> Examination:
    """Read what there is and say what it tells.

    Args:
        topo: a file with what `nvidia-smi topo -m` prints.
        nccl_logs: files, or folders of them; what `ncclras` printed may be among them.
        flight_recorder: a folder of dumps, or one.
        inspector: a folder of NCCL Inspector's files, or one.
        xpu_timer: a saved answer of xpu_timer's metrics port, or a folder of them.

    Raises:
        UsageError: nothing was given.
        InputError: an input holds nothing of its kind.
    """
    texts = [(path.name, read_text(path)) for place in nccl_logs for path in log_files(place)]
    return examine_texts(
        topo=None if topo is None else (topo.name, read_text(topo)),
        nccl_logs=texts,
        flight_recorder=flight_recorder,
        inspector=inspector,
        xpu_timer=xpu_timer,
    )


def examine_texts(
    *,
    topo: tuple[str, str] | None = None,
    nccl_logs: Sequence[tuple[str, str]] = (),
    flight_recorder: Path | None = None,
    inspector: Path | None = None,
    xpu_timer: Path | None = None,
    follows_links: bool = False,
) -> Examination:
    """The same of texts in memory, each with its name."""
    if topo is None and not nccl_logs and all(place is None for place in (flight_recorder, inspector, xpu_timer)):
        raise UsageError(
            "nothing to examine: give a folder of logs and dumps, --run, or one of --topo, --nccl-log, "
            "--flight-recorder, --inspector and --xpu-timer"
        )
    ras = [parse_ras(text, name) for name, text in nccl_logs if is_ras(text)]
    logs = [(name, text) for name, text in nccl_logs if not is_ras(text)]
    recorder = None if flight_recorder is None else read_flight_recorder(flight_recorder, follows_links=follows_links)
    stand = None if recorder is None else standing(recorder)
    records = None if inspector is None else read_inspector(inspector, follows_links=follows_links)
    topology = None if topo is None else parse_topology(topo[1], topo[0])
    metrics = None if xpu_timer is None else read_xpu_timer(xpu_timer, follows_links=follows_links)
    case = Case(topology, read_logs(logs) if logs else (), recorder, stand, records, _joined(ras), metrics)
    folders = [place for place in (flight_recorder, inspector, xpu_timer) if place is not None]
    notes = [] if follows_links else [note for place in folders for note in left_out(place)]
    notes += [note for part in (topology, recorder, records, metrics) if part is not None for note in part.notes]
    diagnoses = tuple(one.legible for one in diagnose(case))
    return Examination(case, diagnoses, tuple(map(printable, notes)))


def read_text(path: Path) -> str:
    """A text file; bytes that are no UTF-8 become marks.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    try:
        content = bounded.content(path, MOST_TEXT_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise InputError(f"{path}: {error.strerror}; give the part around the start and the end") from error
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if b"\0" in content[:4096]:
        raise InputError(f"{path}: not a text file")
    return content.decode("utf-8", errors="replace")


def left_out(place: Path) -> list[str]:
    """Which links of a folder lead out of it: what they name is not read."""
    if not place.is_dir():
        return []
    links = [path for path in all_below(place, follows_links=True) if leads_out(path, place)]
    return [f"{path}: skipped, {LINK_OUT}" for path in links]


def log_files(place: Path, *, follows_links: bool = False) -> list[Path]:
    """A file, or the files of a folder that are NCCL logs or what `ncclras` printed.

    Raises:
        InputError: the folder has none.
    """
    if not place.is_dir():
        return [place]
    found = [path for path in all_below(place, follows_links=follows_links) if _is_log_file(path)]
    if not found:
        why = "" if follows_links else "; ".join(["", *left_out(place)])
        raise InputError(f"{place}: no log in it{why}")
    return found


def _is_log_file(path: Path) -> bool:
    with path.open("rb") as file:
        return is_log(file.read(1 << 18))


def is_log(head: bytes) -> bool:
    """Whether a file of a folder is an NCCL log, by its beginning."""
    return b"NCCL" in head and b"\0" not in head


def _joined(reports: Sequence[RasReport]) -> RasReport | None:
    if not reports:
        return None
    return RasReport(tuple(trouble for one in reports for trouble in one.troubles), reports[0].nccl_version)
