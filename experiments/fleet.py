"""Whether the report's first line names the set of ranks at fault, of simulated jobs of hundreds of ranks.

    PYTHONPATH=. python experiments/fleet.py --ranks 256 1024 --output docs/results/fleet.md

Each job is written by `tests/simulator/fleet.py` (8 ranks a host, 4 hosts a rack, hybrid sharding; what is slow takes
1.24 times as long, a slow link twice) and read by the command, with `--hosts`. Writes a row for each job: what was
said first, whether that names the set and its cause, CPU seconds of all processes, and the largest process.
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

from tests.simulator import fleet

HEAD = """# Sets of ranks that are slow, by simulated job

Made by `experiments/fleet.py` on {date}, {cores} cores. *Named* says that the first sentence holds every word of the
truth ({words}) and that no second lateness is said.

| ranks | fault | named | said first | CPU s | largest process, MB |
|---:|---|---|---|---:|---:|
"""


def main() -> None:
    """Run the jobs and write the table as it grows."""
    options = arguments()
    rows = []
    for ranks in options.ranks:
        for fault in options.faults:
            rows.append(measured(ranks, fault, options.jobs))
            print(rows[-1], flush=True)
            date, cores = f"{datetime.now(UTC):%Y-%m-%d}", len(os.sched_getaffinity(0))
            words = "ranks, host, rack or half of the job"
            options.output.write_text(HEAD.format(date=date, cores=cores, words=words) + "\n".join(rows) + "\n")


def measured(ranks: int, fault: str, jobs: int | None) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        traces, report = Path(folder, "traces"), Path(folder, "report")
        truth = fleet.write(traces, ranks, fault)
        command = [sys.executable, "-m", "traceanalyzer", "report", str(traces), "--hosts", str(traces / "hosts.csv")]
        command += ["--output", str(report), "--quiet", "--no-cache", *([] if jobs is None else ["--jobs", str(jobs)])]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads((report / "summary.json").read_text())["findings"]
    late = [each for each in found if each["rule"] == "late_ranks"]
    first = found[0]["title"] if found else ""
    is_named = len(late) == bool(truth.ranks) and all(word in first for word in truth.says if truth.ranks)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    named, peak_mb = "yes" if is_named else "no", after.ru_maxrss * 1024 / 1e6
    return f"| {ranks:,} | {fault} | {named} | {first} | {cpu_s:.0f} | {peak_mb:,.0f} |"


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--faults", nargs="+", default=list(fleet.FAULTS))
    parser.add_argument("--jobs", type=int, help="as of the command")
    parser.add_argument("--output", type=Path, default=Path("docs/results/fleet.md"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
