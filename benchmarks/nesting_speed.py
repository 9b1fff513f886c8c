"""How fast a million host events are nested, and operators, modules and MFU computed from them.

    python benchmarks/nesting_speed.py tests/captures/ddp/rank0.json.gz --events 1000000

Repeats a sample's host events with shifted times in memory; prints the least CPU time of three runs (other
work on the machine hardly lengthens it).
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from traceanalyzer.analyses import reduce_rank
from traceanalyzer.analyses.operators.operator_tree import Nesting
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace, make_trace
from traceanalyzer.readers import RankHint, kineto
from traceanalyzer.selection import Selection, select


def main() -> None:
    options = arguments()
    (trace,) = kineto.read(options.sample, RankHint(0, "path"), KindRules())
    trace = repeated(trace, -(-options.events // len(trace.host_ops)))
    print(
        f"{len(trace.host_ops):,} operators, {len(trace.api_calls):,} API calls, {len(trace.gpu_ops):,} GPU operations"
    )
    print(f"nesting: {best(lambda: Nesting.of(trace.host_ops)):.2f} s")
    for name in ("operators", "operator_kernels", "modules", "efficiency", "mfu"):
        print(f"{name}, with what it needs: {best(lambda name=name: reduce_rank(trace, [name])):.2f} s")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sample", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    return parser.parse_args()


def best(work: Callable[[], object], times: int = 3) -> float:
    seconds = []
    for _ in range(times):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def repeated(trace: RankTrace, copies: int) -> RankTrace:
    """The trace so many times one after the other, with correlation and sequence numbers of their own."""
    span = trace.window.length_ns + 1_000_000_000
    names = ("gpu_ops", "api_calls", "host_ops", "ranges", "frames")
    tables = {name: pd.concat([shifted(trace.table(name), copy, span) for copy in range(copies)]) for name in names}
    made = make_trace(replace(trace.meta), **{name: table.reset_index(drop=True) for name, table in tables.items()})
    return select(made, Selection())


def shifted(table: pd.DataFrame, copy: int, span_ns: int) -> pd.DataFrame:
    moved = {name: table[name] + copy * span_ns for name in ("start_ns", "end_ns")}
    numbers = [name for name in ("correlation", "sequence") if name in table]
    moved |= {name: table[name] + copy * 10_000_000 for name in numbers}
    return table.assign(**moved)


if __name__ == "__main__":
    main()
