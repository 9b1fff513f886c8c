"""CPU time of the job's graph and its replays: a capture's ranks, repeated in time and copied to more ranks.

python benchmarks/replay_speed.py tests/captures/ddp --copies 40 --ranks 8
python benchmarks/replay_speed.py tests/captures/ddp --copies 40 --ranks 8 --memory      # counted, which takes longer
"""

import argparse
from dataclasses import replace
from time import process_time
from tracemalloc import get_traced_memory, start
from typing import Any

import numpy as np
import pandas as pd

import traceanalyzer as ta
from traceanalyzer.analyses import combine, reduce_rank
from traceanalyzer.analyses.operators.launch_loops import Loops
from traceanalyzer.analyses.operators.operator_tree import OperatorTree, Scopes, same_work
from traceanalyzer.analyses.phases import op_phases
from traceanalyzer.analyses.replay import critical_path, replay
from traceanalyzer.analyses.replay.changes import PEERS, Change
from traceanalyzer.model import RankTrace, make_trace
from traceanalyzer.model.tables import pandas_set_up
from traceanalyzer.selection import Selection, select

NEEDED = ("members", "clocks", "steps", "ranks", "calls", "groups")
EVENTS = ("gpu_ops", "api_calls", "host_ops", "ranges", "comm_args")


@pandas_set_up()
def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("capture")
    arguments.add_argument("--copies", type=int, default=40)
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("--memory", action="store_true", help="count what graph and replays allocate")
    options = arguments.parse_args()
    base = [repeated(trace, options.copies) for trace in ta.load(options.capture).ranks]
    held = sum(trace.table(name).memory_usage(deep=False).sum() for trace in base for name in EVENTS) / len(base)
    of_ranks: dict[int, Any] = {}
    pieces = {}
    clock = Clock()
    if options.memory:
        start()
    for rank in range(options.ranks):
        trace = as_rank(base[rank % len(base)], rank, options.ranks)
        own = reduce_rank(trace, NEEDED)
        tree, phases = OperatorTree.of(trace), op_phases(trace)
        loops, work = Loops.of(trace, tree, Scopes.of(trace, tree)), same_work(trace, tree)
        clock.leave_out()
        pieces[rank] = replay.per_rank(trace, own["members"], own["calls"], own["groups"], tree, phases, loops, work)
        clock.add("graph of each rank")
        of_ranks[rank] = own
    before = combine(of_ranks, ("members", "clocks", "steps", "ranks", "call_waits"))
    clock.leave_out()
    found = replay.across(pieces, **before)
    clock.add("joined, replayed twice")
    found.engine.job.replay(found.engine.job.recorded)
    clock.add("one replay more")
    stretches = critical_path.stretches(pieces, found)
    critical_path.across(pieces, stretches)
    clock.add("critical path")
    found.engine.steps([(), (Change("rank", PEERS, frozenset({0})),)])
    clock.add("a first gain")
    found.engine.steps([(Change("cpu"),)])
    clock.add("one gain more")
    found.engine.steps([(Change("cpu", PEERS, frozenset({rank})),) for rank in range(min(options.ranks, 7))])
    clock.add("seven gains together, as of episodes that hide each other")
    print(f"{options.ranks} ranks × {len(base[0].gpu_ops):,} operations; events {options.ranks * held / 1e6:.0f} MB")
    if options.memory:
        print(f"at most {get_traced_memory()[1] / 1e6:.0f} MB counted, with what the ranks' other tables hold")
        return
    print("| stage | CPU s |\n|---|---|")
    for stage, seconds in clock.spent.items():
        print(f"| {stage} | {seconds:.2f} |")


class Clock:
    """CPU seconds by stage."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._since = process_time()

    def leave_out(self) -> None:
        """What was done since the last stage is of none."""
        self._since = process_time()

    def add(self, stage: str) -> None:
        """What was done since then is of this stage."""
        now = process_time()
        self.spent[stage] = self.spent.get(stage, 0.0) + now - self._since
        self._since = now


def repeated(trace: RankTrace, copies: int) -> RankTrace:
    """The rank's capture several times, one after the other."""
    ops, calls = trace.gpu_ops, trace.api_calls
    length = int(max(frame["end_ns"].max() - frame["start_ns"].min() for frame in (ops, calls, trace.host_ops)))
    numbers = int(max(ops["correlation"].max(), calls["correlation"].max())) + 1
    tables = {}
    for name in EVENTS:
        frame = trace.table(name)
        parts = [later(frame, copy, length + 1_000_000, numbers, len(ops)) for copy in range(copies)]
        texts = {column: "category" for column in frame if frame[column].dtype == "category"}
        tables[name] = pd.concat(parts, ignore_index=True).astype(texts)
    return select(make_trace(trace.meta, **tables), Selection())


def later(frame: pd.DataFrame, copy: int, length_ns: int, numbers: int, operations: int) -> pd.DataFrame:
    shift = copy * length_ns
    moved = frame.assign(start_ns=frame["start_ns"] + shift, end_ns=frame["end_ns"] + shift)
    if "correlation" in frame:
        moved["correlation"] = frame["correlation"].where(
            frame["correlation"] <= 0, frame["correlation"] + copy * numbers
        )
    if "gpu_op" in frame:
        moved["gpu_op"] = frame["gpu_op"].where(frame["gpu_op"] < 0, frame["gpu_op"] + copy * operations)
    names = frame["name"].astype("str") if "name" in frame else pd.Series(dtype="str")
    if names.str.startswith("ProfilerStep#").any():
        number = names.str.extract(r"ProfilerStep#(\d+)")[0].fillna("0").astype(int) + 1_000 * copy
        moved["name"] = names.where(~names.str.startswith("ProfilerStep#"), "ProfilerStep#" + number.astype(str))
    return moved


def as_rank(trace: RankTrace, rank: int, ranks: int) -> RankTrace:
    """The same events as another rank's of one group of all."""
    group = pd.Categorical([",".join(map(str, range(ranks)))] * len(trace.comm_args))
    arguments = trace.comm_args.assign(
        group_ranks=group, group_size=pd.array(np.full(len(group), ranks), dtype="Int64")
    )
    return replace(trace, comm_args=arguments, meta=replace(trace.meta, rank=rank, world_size=ranks))


if __name__ == "__main__":
    main()
