"""Whether the first finding blames the ranks at fault, in simulated jobs of hundreds of ranks.

    PYTHONPATH=. python experiments/fleet.py --ranks 256 1024 --output docs/results/fleet.md
    PYTHONPATH=. python experiments/fleet.py --ranks 512 --parallel data tensor pipeline --seed 7

Each job is written by `tests/simulator/fleet.py` (8 ranks a host, 4 hosts a rack; what is slow takes 1.24 times as
long, a slow link twice; with a seed the place of the fault is drawn) and read by the command, with `--hosts`. A fault
of links is tried only where there are transfers within a host. Writes a row for each job: the first headline, whether
the ranks at fault and no others are blamed, CPU seconds of all processes, and the largest process. Rows of jobs that
are not run stay in the file, so that large ones can be run one by one.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulator import fleet

HEAD = """# Simulated jobs of hundreds of ranks

Made by `experiments/fleet.py`: 8 ranks per host, 4 hosts per rack, the ranks at fault 1.24 times slower
(a slow link: 2 times). *Right*: those ranks, and no others, are blamed, with the right cause. One run per row.

| ranks | job | fault | seed | right | first finding | CPU s | largest process, MB | date | cores |
|---:|---|---|---|---|---|---:|---:|---|---:|
"""


def main() -> None:
    """Run the jobs and write the table as it grows."""
    options = arguments()
    rows = held(options.output)
    for ranks, parallel, fault in product(options.ranks, options.parallel, options.faults):
        if fault == "nvlink" and parallel not in fleet.WITHIN_HOSTS:
            continue
        asked = Asked(ranks, parallel, fault, options.seed)
        row = measured(asked, options.jobs, options.keep and options.keep / f"{parallel}_{ranks}_{fault}")
        print(row, flush=True)
        rows[_job_of(row)] = row
        ordered = [rows[job] for job in sorted(rows, key=_place)]
        options.output.write_text(HEAD + "\n".join(ordered) + "\n")


class Asked(NamedTuple):
    """A job: so many ranks, its kind, its fault, and by which seed the place of it is drawn."""

    ranks: int
    parallel: str
    fault: str
    seed: int | None


def held(path: Path) -> dict[Asked, str]:
    """The rows of a table that was written before, by job."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {_job_of(line): line for line in lines if line[:3].strip("| ").isdigit()}


def _job_of(row: str) -> Asked:
    ranks, parallel, fault, seed = (part.strip() for part in row.split("|")[1:5])
    return Asked(int(ranks.replace(",", "")), parallel, fault, int(seed) if seed else None)


def _place(job: Asked) -> tuple[int, ...]:
    kinds = list(fleet.PARALLEL)
    return kinds.index(job.parallel), job.ranks, -1 if job.seed is None else job.seed, fleet.FAULTS.index(job.fault)


def measured(asked: Asked, jobs: int | None, kept: Path | None = None) -> str:
    """A row of the table; the report stays at `kept`."""
    with tempfile.TemporaryDirectory() as folder:
        traces, report = Path(folder, "traces"), kept or Path(folder, "report")
        truth = fleet.write(traces, asked.ranks, asked.fault, parallel=asked.parallel, seed=asked.seed)
        command = [sys.executable, "-m", "traceanalyzer", "report", str(traces), "--hosts", str(traces / "hosts.csv")]
        command += ["--output", str(report), "--quiet", "--no-cache", *([] if jobs is None else ["--jobs", str(jobs)])]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads((report / "summary.json").read_text())["findings"]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return row_of(asked, found, truth, cpu_s, after.ru_maxrss * 1024 / 1e6)


def row_of(asked: Asked, found: list[dict[str, Any]], truth: fleet.Truth, cpu_s: float, peak_mb: float) -> str:
    """The row of a job of which these findings were made."""
    blamed = [(tuple(each["scope"]["ranks"]), each["cause"]) for each in found if each["is_blamed"]]
    is_right = blamed == ([(truth.ranks, truth.cause)] if truth.ranks else [])
    right = "yes" if is_right else "no"
    first = found[0]["headline"] if found else "none"
    drawn = "" if asked.seed is None else asked.seed
    job = f"{asked.ranks:,} | {asked.parallel} | {asked.fault} | {drawn}"
    day, cores = f"{datetime.now(UTC):%Y-%m-%d}", len(os.sched_getaffinity(0))
    return f"| {job} | {right} | {first} | {cpu_s:.0f} | {peak_mb:,.0f} | {day} | {cores} |"


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--parallel", nargs="+", choices=fleet.PARALLEL, default=["hybrid"])
    parser.add_argument("--faults", nargs="+", choices=fleet.FAULTS, default=list(fleet.FAULTS))
    parser.add_argument("--seed", type=int, help="draws where the fault is")
    parser.add_argument("--jobs", type=int, help="as of the command")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where reports stay, a folder a job")
    parser.add_argument("--output", type=Path, default=Path("docs/results/fleet.md"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
