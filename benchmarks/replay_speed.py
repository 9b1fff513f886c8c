"""CPU time of the job's graph and its replays: a capture's ranks, repeated in time and copied to more ranks.

python benchmarks/replay_speed.py tests/captures/ddp --copies 40 --ranks 8
python benchmarks/replay_speed.py tests/captures/ddp --copies 40 --ranks 8 --memory      # counted, which takes longer
"""

import argparse
from dataclasses import replace
from itertools import pairwise
from time import process_time
from tracemalloc import get_traced_memory, reset_peak, start

import numpy as np
import pandas as pd

import traceanalyzer as ta
from traceanalyzer.analyses import combine, reduce_rank
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.phases.op_phases import op_phases
from traceanalyzer.analyses.replay import replay
from traceanalyzer.analyses.replay.change import PEERS, Change
from traceanalyzer.model import RankTrace, make_trace
from traceanalyzer.selection import Selection, select

EVENTS = ("gpu_ops", "api_calls", "host_ops", "ranges", "comm_args")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("capture")
    arguments.add_argument("--copies", type=int, default=40)
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("--memory", action="store_true", help="count what graph and replays allocate")
    options = arguments.parse_args()
    base = [repeated(trace, options.copies) for trace in ta.load(options.capture).ranks]
    held = sum(trace.table(name).memory_usage(deep=False).sum() for trace in base for name in EVENTS) / len(base)
    of_ranks = []
    for rank in range(options.ranks):
        trace = as_rank(base[rank % len(base)], rank, options.ranks)
        own = reduce_rank(trace, ("members", "clocks", "steps", "ranks", "calls", "groups"))
        of_ranks.append((trace, own, OperatorTree.of(trace), op_phases(trace)))
    before = combine({rank: own for rank, (_, own, *_) in enumerate(of_ranks)}, ("members", "clocks", "steps"))
    if options.memory:
        start()
    marks = [process_time()]
    pieces = {
        rank: replay.per_rank(trace, own["members"], own["calls"], own["groups"], tree, phases)
        for rank, (trace, own, tree, phases) in enumerate(of_ranks)
    }
    marks.append(process_time())
    found = replay.across(pieces, **before)
    marks.append(process_time())
    found.engine.job.replay(found.engine.job.recorded)
    marks.append(process_time())
    if options.memory:
        kept, peak = (each / 1e6 for each in get_traced_memory())
        reset_peak()
    found.engine.gains([(Change("rank", PEERS, frozenset({0})),)])
    marks.append(process_time())
    found.engine.gains([(Change("host"),)])
    marks.append(process_time())
    graph, joined, once, first, more = (f"{end - begin:.3g} s" for begin, end in pairwise(marks))
    print(
        f"{options.ranks} ranks × {len(base[0].gpu_ops):,} operations: graph {graph}, joined and replayed twice {joined}, "
        f"one replay more {once}; the first gain with and without the profiler {first}, one more {more}; "
        f"events {options.ranks * held / 1e6:.0f} MB"
    )
    if options.memory:
        print(
            f"graph and replay hold {kept:.0f} MB (at most {peak:.0f} MB), gains at most {get_traced_memory()[1] / 1e6:.0f} MB"
        )


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
