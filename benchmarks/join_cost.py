"""What putting ranks together costs, of simulated ranks: sending their tables, and every Result of all ranks.

    PYTHONPATH=. python benchmarks/join_cost.py --ranks 64 256

CPU time of this process; the ranks' own analyses, made beforehand, are not in it. A line for each
number of ranks.
"""

import argparse
import pickle
import tempfile
import time
from pathlib import Path

from tests.simulator import fleet
from traceanalyzer.analyses import ANALYSES, combine
from traceanalyzer.discovery import discover
from traceanalyzer.loading import LoadOptions
from traceanalyzer.scale.work import Done, reduce_capture, set_up_process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64])
    parser.add_argument("--fault", default="node", choices=fleet.FAULTS)
    given = parser.parse_args()
    set_up_process()
    for ranks in given.ranks:
        with tempfile.TemporaryDirectory() as folder:
            fleet.write(Path(folder), ranks, given.fault)
            (run,) = discover(Path(folder)).runs
            how = {"options": LoadOptions(), "names": tuple(ANALYSES), "thresholds": {}, "is_guarded": True}
            files = [reduce_capture(capture, **how) for capture in run.captures]
        print(f"{ranks} ranks, CPU ms a rank: {measured(files)}", flush=True)


def measured(files: list[Done]) -> str:
    """Each part's CPU time, a rank."""
    times = {}
    began = time.process_time()
    sent = [pickle.dumps(done, 5) for done in files]
    times["sent"] = time.process_time() - began
    began = time.process_time()
    received = [pickle.loads(one) for one in sent]
    times["received"] = time.process_time() - began
    began = time.process_time()
    parts = {meta.rank: tables for done in received for meta, tables in done.ranks}
    combine(parts)
    times["every Result"] = time.process_time() - began
    return ", ".join(f"{what} {1000 * spent_s / len(parts):.1f}" for what, spent_s in times.items())


if __name__ == "__main__":
    main()
