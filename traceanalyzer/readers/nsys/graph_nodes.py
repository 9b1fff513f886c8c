"""When nodes of CUDA graphs were made: what a replay runs has the operators and ranges around its capture."""

import pandas as pd

from traceanalyzer.cuda_graphs.operators import Recording, with_operators
from traceanalyzer.model import RankTrace
from traceanalyzer.model.event_times import UNKNOWN_NS
from traceanalyzer.model.schema import NONE
from traceanalyzer.readers.nsys.ids import process_of, thread_of
from traceanalyzer.readers.nsys.source import Source, int_values

NODES = "CUDA_GRAPH_NODE_EVENTS"

_NODES_A_GRAPH = 1 << 32
"""A node's id is this times its graph's, plus the order in which it was made."""

_CLONES = 8
"""Copies of copies that are followed: a graph is captured, put into another one, instantiated."""


def read_graph_nodes(source: Source) -> pd.DataFrame:
    """`process`, `thread`, `start_ns` (the export's own time), `node`, `original` (-1 of one that is no copy)."""
    rows = source.read(NODES, ints=("start", "globalTid", "graphNodeId", "originalGraphNodeId"))
    thread = int_values(rows, "globalTid", 0)
    return pd.DataFrame(
        {
            "process": process_of(thread),
            "thread": thread_of(thread),
            "start_ns": int_values(rows, "start", UNKNOWN_NS),
            "node": int_values(rows, "graphNodeId"),
            "original": int_values(rows, "originalGraphNodeId"),
        }
    )


def with_capturing_operators(trace: RankTrace, nodes: pd.DataFrame) -> RankTrace:
    """The trace, where what graphs replay has the operators and ranges that were open when its nodes were captured.

    Ranges around a whole capture are left out: they may be steps.
    """
    ops = trace.gpu_ops
    held = ops[ops["graph_node"].notna() & (ops["launch"] != NONE)]
    if nodes.empty or held.empty:
        return trace
    nodes = nodes.drop_duplicates("node").set_index("node")
    origin = held["graph_node"].astype("int64")
    for _ in range(_CLONES):
        origin = origin.map(nodes["original"]).fillna(NONE).astype("int64").where(lambda found: found != NONE, origin)
    matched = pd.DataFrame({"op": held.index, "launch": held["launch"], "source": origin})
    matched = matched[matched["source"].isin(nodes.index)].assign(block=lambda rows: rows["source"] // _NODES_A_GRAPH)
    launches = nodes.loc[nodes.index.isin(matched["source"]), ["start_ns", "thread"]]
    launches = launches.assign(block=launches.index // _NODES_A_GRAPH)
    tables = {"host_ops": trace.host_ops, "ranges": trace.ranges}
    return with_operators(trace, matched, Recording(launches, tables, inside=frozenset({"ranges"})))
