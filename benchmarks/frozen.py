"""Hashes of all that the command writes of many captures and simulated jobs: a change that should alter nothing is held to it.

    python -m benchmarks.frozen hashes.json [FOLDER…] [--jobs 300]      write the hashes
    python -m benchmarks.frozen hashes.json [FOLDER…] --against OLD     write them, and name what differs

FOLDERs hold captures, one a subfolder or file, at any depth; without any the samples are used. Of simulated jobs every
n-th is taken, or against older hashes those that these are of.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Write the hashes, and say what differs from older ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hashes", type=Path)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--jobs", type=int, default=0, help="how many simulated jobs")
    parser.add_argument("--against", type=Path, help="hashes of an older revision")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    chosen = parser.parse_args()
    old = json.loads(chosen.against.read_text()) if chosen.against else {}
    captures = [one for folder in chosen.folders or [ROOT / "sample_traces"] for one in captures_in(folder.resolve())]
    with ProcessPoolExecutor(chosen.processes) as pool:
        found = dict(pool.map(of_capture, captures))
        found |= dict(pool.map(of_job, simulated(chosen.jobs, old), chunksize=4))
    chosen.hashes.write_text(json.dumps(found, indent=0, sort_keys=True))
    print(f"{len(found)} captures and jobs, all in all {_hash(json.dumps(found, sort_keys=True))}")
    if chosen.against:
        sys.exit(differing(old, found))


def captures_in(folder: Path) -> list[Path]:
    """Folders that hold traces themselves, and files of several ranks."""
    inside = [one for one in sorted(folder.iterdir()) if not one.name.startswith(".")]
    if any(one.name.endswith((".json", ".json.gz", ".pb", ".pickle")) for one in inside if one.is_file()):
        return [folder]
    files = [one for one in inside if one.name.endswith((".sqlite", "_pqtdir"))]
    folders = [one for one in inside if one.is_dir() and one not in files]
    return files + [capture for one in folders for capture in captures_in(one)]


def of_capture(capture: Path) -> tuple[str, dict[str, str]]:
    """Hashes of what the command prints and writes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [
            sys.executable,
            "-m",
            "traceanalyzer",
            "--trace-dir" if capture.is_dir() else "--trace-file",
            str(capture),
        ]
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "COLUMNS": "100"}
        done = subprocess.run(
            [*command, "--output", str(out)], capture_output=True, text=True, env=environment, check=False
        )
        texts = {"terminal": f"{done.returncode}\n{done.stdout}\n{done.stderr}"}
        texts |= {one.relative_to(out).as_posix(): one.read_text("utf-8", "replace") for one in out.rglob("*.*") if one.is_file() and one.suffix != ".parquet"}  # fmt: skip
        return f"{capture.parent.name}/{capture.name}", {
            name: _hash(_without_times(text.replace(folder, "").replace(str(ROOT), ""))) for name, text in texts.items()
        }


def simulated(count: int, old: Collection[str]) -> list[str]:
    """Names of that many simulated jobs, evenly chosen; of those that older hashes are of, as many as there still are."""
    if not count:
        return []
    from tests.simulator.cases import EVERY_CASE  # noqa: PLC0415 - only where jobs are asked for

    names = [case.name for case in EVERY_CASE]
    if again := [name for name in names if name in old]:
        return again
    return names[:: max(1, len(names) // count)]


def of_job(name: str) -> tuple[str, dict[str, str]]:
    """Hashes of a simulated job's findings and tables."""
    from tests.simulator.cases import EVERY_CASE  # noqa: PLC0415 - only where jobs are asked for
    from tests.simulator.scoreboard import report_of  # noqa: PLC0415 - likewise

    report = report_of(next(case for case in EVERY_CASE if case.name == name))
    texts = {name: result.to_frame().to_csv() for name, result in report.results.items()}
    texts["findings"] = re.sub(r"0x[0-9a-f]+", "", repr(report.findings))
    return name, {name: _hash(text) for name, text in texts.items()}


def differing(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]) -> int:
    """Name what differs, and count it."""
    count = 0
    print(f"{len(old.keys() - new.keys())} are no longer there")
    for name in sorted(new):
        a, b = old.get(name, {}), new[name]
        parts = sorted(part for part in a.keys() | b.keys() if a.get(part) != b.get(part))
        if parts:
            count += 1
            print(f"{name}: {', '.join(parts[:8])}{' …' if len(parts) > 8 else ''}")
    print(f"{count} of {len(new)} differ")
    return min(count, 1)


def _without_times(text: str) -> str:
    """Without the moment at which a report was made, and hashes of what names it."""
    return re.sub(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?|sha256-[\w+/=]+", "", text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
