"""An examination as JSON."""

import json
from dataclasses import asdict
from pathlib import Path

from traceanalyzer import __version__
from traceanalyzer.doctor import Examination
from traceanalyzer.doctor.examination import tables

FORMAT_VERSION = 1


def text(examination: Examination) -> str:
    """The whole examination: verdict, diagnoses, tables of what was read."""
    ras = examination.case.ras
    content = {
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "verdict": examination.verdict,
        "diagnoses": [asdict(one) for one in examination.diagnoses],
        "tables": tables(examination.case),
        "ras": None if ras is None else asdict(ras),
        "notes": examination.notes,
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)


def write(examination: Examination, folder: Path) -> list[Path]:
    """`doctor.json`."""
    path = folder / "doctor.json"
    path.write_text(text(examination) + "\n", encoding="utf-8", errors="replace")
    return [path]
