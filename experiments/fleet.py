"""Whether the report's first line names the set of ranks at fault, of simulated jobs of hundreds of ranks.

    PYTHONPATH=. python experiments/fleet.py --ranks 256 1024 --output docs/results/fleet.md

Each job is written by `tests/simulator/fleet.py` (8 ranks a host, 4 hosts a rack, hybrid sharding; what is slow takes
1.24 times as long, a slow link twice) and read by the command, with `--hosts`. Writes a row for each job: what was
said first, whether that names the set and its cause, CPU seconds of all processes, and the largest process. Rows of
jobs that are not asked for stay as the file has them, so that the large ones can be run one by one.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.simulator import fleet

HEAD = """# Sets of ranks that are slow, by simulated job

From runs of `experiments/fleet.py` on {date}, {cores} cores. *Named* says that the first sentence holds every word
of the truth ({words}) and that no second lateness is said.
*In pieces*: read and analysed by hand 64 or 128 ranks at a time, one process after the other, and put
together by a last one.

| ranks | fault | named | said first | CPU s | largest process, MB |
|---:|---|---|---|---:|---:|
"""


def main() -> None:
    """Run the jobs and write the table as it grows."""
    options = arguments()
    rows = held(options.output)
    for ranks in options.ranks:
        for fault in options.faults:
            row = measured(ranks, fault, options.jobs, options.keep and options.keep / f"{ranks}_{fault}")
            print(row, flush=True)
            rows[_job_of(row)] = row
            date, cores = f"{datetime.now(UTC):%Y-%m-%d}", len(os.sched_getaffinity(0))
            words = "ranks, host, rack or half of the job"
            ordered = [rows[job] for job in sorted(rows, key=lambda job: (job[0], fleet.FAULTS.index(job[1])))]
            options.output.write_text(HEAD.format(date=date, cores=cores, words=words) + "\n".join(ordered) + "\n")


def held(path: Path) -> dict[tuple[int, str], str]:
    """The rows of a table that was written before, by job."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {_job_of(line): line for line in lines if line[:3].strip("| ").isdigit()}


def _job_of(row: str) -> tuple[int, str]:
    ranks, fault = (part.strip() for part in row.split("|")[1:3])
    return int(ranks.replace(",", "")), fault


def measured(ranks: int, fault: str, jobs: int | None, kept: Path | None = None) -> str:
    """A row of the table; the report stays at `kept`."""
    with tempfile.TemporaryDirectory() as folder:
        traces, report = Path(folder, "traces"), kept or Path(folder, "report")
        truth = fleet.write(traces, ranks, fault)
        command = [sys.executable, "-m", "traceanalyzer", "report", str(traces), "--hosts", str(traces / "hosts.csv")]
        command += ["--output", str(report), "--quiet", "--no-cache", *([] if jobs is None else ["--jobs", str(jobs)])]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads((report / "summary.json").read_text())["findings"]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return row_of(ranks, fault, found, truth, cpu_s, after.ru_maxrss * 1024 / 1e6)


def row_of(
    ranks: int, fault: str, found: list[dict[str, Any]], truth: fleet.Truth, cpu_s: float, peak_mb: float
) -> str:
    """The row of a job of which these findings were made."""
    late = [each for each in found if each["rule"] == "late_ranks"]
    first = found[0]["title"] if found else ""
    is_named = len(late) == bool(truth.ranks) and all(word in first for word in truth.says if truth.ranks)
    named = "yes" if is_named else "no"
    return f"| {ranks:,} | {fault} | {named} | {first} | {cpu_s:.0f} | {peak_mb:,.0f} |"


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--faults", nargs="+", default=list(fleet.FAULTS))
    parser.add_argument("--jobs", type=int, help="as of the command")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where reports stay, a folder a job")
    parser.add_argument("--output", type=Path, default=Path("docs/results/fleet.md"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
