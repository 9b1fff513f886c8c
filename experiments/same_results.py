"""Whether a report is the same on one process, two, eight, and on a cluster of which a worker is killed in the middle.

    PYTHONPATH=. python experiments/same_results.py sample_traces/simple_ddp
    PYTHONPATH=. python experiments/same_results.py --simulated 24

Runs the command in each way on the same traces, without the cache, and compares every file that it writes, byte by
byte; of the page, `summary.json` and the folder's mark only the time of writing and the command line are left out.
Needs the extra `cluster`. Prints a line a way, and ends with 1 where a file differs.
"""

import argparse
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulator import fleet

if TYPE_CHECKING:
    from distributed import Client

_VOLATILE = re.compile(
    rb"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\+00:00)?( UTC)?|analyze-traces [^\n\"<]*--output [^\n\"<]*"
)

_WAIT_S = 0.02


def main() -> None:
    """Run all ways and compare."""
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        traces = options.traces or Path(folder, "traces")
        if options.traces is None:
            layout = fleet.USUAL if options.simulated % fleet.USUAL.per_host == 0 else fleet.SMALL
            fleet.write(traces, options.simulated, "node", layout=layout)
        ways = {}
        for count in options.jobs:
            ways[f"--jobs {count}"] = written(traces, Path(folder, "report"), "--jobs", str(count))
            print(f"--jobs {count}: written", flush=True)
        if options.workers:
            with cluster(options.workers) as (address, killed):
                name = f"Dask, {options.workers} workers, one killed"
                ways[name] = written(traces, Path(folder, "report"), "--scheduler", address, killed=killed)
    first, expected = next(iter(ways.items()))
    is_same = True
    for way, files in ways.items():
        other = sorted(name for name in {*expected, *files} if expected.get(name) != files.get(name))
        said = f"differ from {first}: {', '.join(other)}" if other else f"{digest(files)} over {len(files)} files"
        print(f"{way}: {said}")
        is_same = is_same and not other
    sys.exit(not is_same)


def written(traces: Path, report: Path, *how: str, killed: "Killing | None" = None) -> dict[str, str]:
    """What the command writes, by name of the file; a worker is killed meanwhile if so asked."""
    command = [sys.executable, "-m", "traceanalyzer", "report", str(traces), "--output", str(report)]
    with subprocess.Popen([*command, "--no-cache", "--quiet", "--force", *how]) as process:
        if killed is not None:
            killed.after_first_result(process)
        code = process.wait()
    if code:
        sys.exit(f"{' '.join(how)}: the command ended with {code}")
    files = (path for path in sorted(report.rglob("*")) if path.is_file())
    return {str(path.relative_to(report)): _hash(path.read_bytes()) for path in files}


class Killing:
    """Ends a worker's process with SIGKILL once one of the cluster's tasks is done and others are not."""

    def __init__(self, client: "Client", process_id: int) -> None:
        self._client, self._process_id = client, process_id

    def after_first_result(self, running: "subprocess.Popen[bytes]") -> None:
        """Wait for that moment and kill; it is an error if the command is done before."""
        while running.poll() is None:
            states = self._client.run_on_scheduler(_states)
            if states.get("memory") and len(states) > 1:
                os.kill(self._process_id, signal.SIGKILL)
                print(f"killed worker {self._process_id} while tasks were {states}")
                return
            time.sleep(_WAIT_S)
        sys.exit("the command was done before a worker could be killed: take more ranks")


@contextmanager
def cluster(workers: int) -> Iterator[tuple[str, Killing]]:
    """A cluster on this machine: its address, and what kills its first worker."""
    from distributed import Client, LocalCluster  # noqa: PLC0415 - an extra, which `--workers 0` does without

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50) as made,
        Client(made, set_as_default=False) as client,
    ):
        process_id = next(iter(client.run(os.getpid).values()))
        yield made.scheduler_address, Killing(client, process_id)


def digest(files: dict[str, str]) -> str:
    """One for all files."""
    return _hash("\n".join(f"{name} {own}" for name, own in files.items()).encode())


def _states(dask_scheduler: object) -> dict[str, int]:
    """How many of its tasks are in each state."""
    tasks = [task.state for task in dask_scheduler.tasks.values()]  # type: ignore[attr-defined] - Dask has no types
    return {state: tasks.count(state) for state in sorted({*tasks})}


def _hash(content: bytes) -> str:
    return hashlib.sha256(_VOLATILE.sub(b"", content)).hexdigest()[:16]


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="?", help="a folder of traces")
    parser.add_argument(
        "--simulated", type=int, default=24, help="ranks of a simulated job, without a folder: a multiple of 8 or of 3"
    )
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--workers", type=int, default=2, help="of the cluster; 0 for none")
    return parser.parse_args()


if __name__ == "__main__":
    main()
