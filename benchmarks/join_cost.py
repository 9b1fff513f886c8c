"""What putting ranks together costs, of simulated ranks: joining their tables in bundles, and every Result of all ranks.

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
from traceanalyzer.analyses import ANALYSES, combine_tables
from traceanalyzer.discovery import discover
from traceanalyzer.loading import LoadOptions
from traceanalyzer.scale.work import MOST_OF_A_BUNDLE, Gathered, gather_capture, set_up_process


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
            files = [gather_capture(capture, **how) for capture in run.captures]
        print(f"{ranks} ranks, CPU ms a rank: {measured(files)}", flush=True)


def measured(files: list[Gathered]) -> str:
    """Each part's CPU time, a rank."""
    times = {}
    began = time.process_time()
    size = MOST_OF_A_BUNDLE
    bundles = [Gathered.joined(files[begin : begin + size]) for begin in range(0, len(files), size)]
    times["joined in bundles"] = time.process_time() - began
    sent = [pickle.dumps(bundle, 5) for bundle in bundles]
    began = time.process_time()
    whole = Gathered.joined([pickle.loads(one) for one in sent])
    times["received and joined"] = time.process_time() - began
    began = time.process_time()
    numbers = {place: rank.meta.rank for place, rank in enumerate(whole.ranks)}
    combine_tables(whole.by_analysis(numbers), len(numbers), tuple(ANALYSES))
    times["every Result"] = time.process_time() - began
    return ", ".join(f"{what} {1000 * spent_s / len(numbers):.1f}" for what, spent_s in times.items())


if __name__ == "__main__":
    main()
