"""What a rank costs, in CPU seconds of this process: reading is apart, all analyses of it, and its part of the rest.

    PYTHONPATH=. python benchmarks/rank_cost.py tests/captures/ddp tests/captures/moe
    PYTHONPATH=. python benchmarks/rank_cost.py --simulated 16 64

The least of some runs, so that other work on the machine counts little.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import traceanalyzer as ta
from traceanalyzer.analyses import combine, reduce_rank
from traceanalyzer.model import RankMeta, RankTrace, make_trace
from traceanalyzer.scale import set_up_process

RUNS = 5


def main() -> None:
    set_up_process()
    if "--simulated" in sys.argv:
        for text in sys.argv[sys.argv.index("--simulated") + 1 :]:
            show(f"{text} simulated ranks", simulated(int(text)), runs=2)
        return
    show("a rank without events", [make_trace(RankMeta(0, "path", (), "kineto"))])
    for folder in sys.argv[1:]:
        show(folder, list(ta.load(folder).ranks))


def show(label: str, ranks: list[RankTrace], runs: int = RUNS) -> None:
    events = sum(len(trace.gpu_ops) + len(trace.host_ops) for trace in ranks) // len(ranks)
    reduced = least(lambda: [reduce_rank(trace) for trace in ranks], runs)
    parts = {trace.rank: reduce_rank(trace) for trace in ranks}
    combined = least(lambda: combine(parts), runs)
    each, rest = (1e3 * seconds / len(ranks) for seconds in (reduced, combined))
    print(f"{label}: {events:,} events a rank; all analyses {each:.0f} ms a rank, across ranks {rest:.1f} ms a rank")


def least(work: Callable[[], Any], runs: int) -> float:
    times = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def simulated(count: int) -> list[RankTrace]:
    """A simulated data-parallel job in which one rank computes longer."""
    from tests.simulator import Capture, capture, kineto, run, scenarios  # noqa: PLC0415 - the repository's, on the path

    job = scenarios.ddp(count, slow_compute_ns={count // 3: 400_000})
    with tempfile.TemporaryDirectory() as folder:
        kineto.write(capture(run(job), Capture()), Path(folder))
        return list(ta.load(folder).ranks)


if __name__ == "__main__":
    main()
