"""A published job of 8 ranks, replayed, beside what its authors' own what-if analysis says of it.

    python experiments/straggler_analysis.py straggler_analysis_ST

reads `trace-ST.parquet` and `result-ST.json` of ByteDance-Seed/StragglerAnalysis (data/*-ST*): DP 2 × PP 4, one row
an operation, times within each step in seconds. Every step is a job of its own; without a host side its operations are
held back by the one before, by messages and by collectives.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from traceanalyzer.analyses.replay.graph import Piece, no_hosts
from traceanalyzer.analyses.replay.job import Job, Lengths

COMPUTE = ("forward-compute", "backward-compute")
LOCAL = ("optimizer", "gc", "layernorm-grads-all-reduce")
"""The last has one rank in its group here: no tensor parallelism."""

SENT = {"forward-send": "forward-recv", "backward-send": "backward-recv"}
TOWARDS = {"forward-send": 1, "backward-send": -1}
"""The stage that a message goes to, from its own."""


def main() -> None:
    """Print both figures side by side."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    folder = arguments.parse_args().folder
    table = pd.read_parquet(next(folder.glob("trace-*.parquet")))
    published = json.loads(next(folder.glob("result-*.json")).read_text())
    found = measured(table)
    print(beside(found, published).to_string(index=False, float_format=lambda value: f"{value:.4f}"))


def measured(table: pd.DataFrame) -> pd.DataFrame:
    """For each step the replays' lengths in s, a column each."""
    table = table.assign(start_ns=nanoseconds(table["start_ts"]), duration_ns=nanoseconds(table["duration"]))
    table["optype"] = table["optype"].astype("str")
    table["key"] = keys(table)
    table["wait_ns"] = table.groupby(["step", "key"])["start_ns"].transform("max") - table["start_ns"]
    table["transfer_ns"] = (table["duration_ns"] - table["wait_ns"]).clip(lower=0)
    ideal = ideals(table)
    return pd.DataFrame([one_step(int(step), own.reset_index(drop=True), ideal) for step, own in table.groupby("step")])


def nanoseconds(seconds: pd.Series) -> np.ndarray:
    """Whole nanoseconds."""
    return np.round(seconds.to_numpy(dtype=np.float64) * 1e9).astype(np.int64)


def keys(table: pd.DataFrame) -> np.ndarray:
    """What operations of one message or collective of a step share; a key of their own for the others."""
    kind = table["optype"].replace({receive: send for send, receive in SENT.items()})
    sender = table["stage"] - table["optype"].map({receive: TOWARDS[send] for send, receive in SENT.items()}).fillna(0)
    place = table["dp_rank"].astype("str") + "/" + sender.astype("int64").astype("str")
    is_message = table["optype"].isin([*SENT, *SENT.values()])
    by_stage = table["optype"].isin(["params-all-gather", "grads-reduce-scatter"])
    group = np.select(
        [
            is_message,
            by_stage,
            table["optype"] == "embedding-grads-all-reduce",
            table["optype"].isin([*COMPUTE, *LOCAL]),
        ],
        [place, table["stage"].astype("str"), table["dp_rank"].astype("str"), table["rank"].astype("str")],
        default="all",
    )
    return (kind + " " + group + " " + table["seq_id"].astype("str")).to_numpy()


def ideals(table: pd.DataFrame) -> dict[str, int]:
    """What each type of operation takes in the ideal job: compute its mean, all else the median transfer."""
    groups = table.groupby("optype")
    means, medians = groups["duration_ns"].mean(), groups["transfer_ns"].median()
    local = groups["duration_ns"].median()
    return {
        kind: round(float(means[kind] if kind in COMPUTE else local[kind] if kind in LOCAL else medians[kind]))
        for kind in groups.groups
    }


def one_step(step: int, table: pd.DataFrame, ideal: dict[str, int]) -> dict[str, float]:
    """The step recorded, replayed, ideal, and ideal but for one stage, one rank of data parallelism or compute."""
    pieces = {int(rank): piece(own.sort_values(["start_ns", "duration_ns"])) for rank, own in table.groupby("rank")}
    job = Job(pieces, members(pieces), {})
    stage = table.groupby("rank")["stage"].first().to_dict()
    replica = table.groupby("rank")["dp_rank"].first().to_dict()
    cases = {
        "recorded": job.recorded,
        "replayed": job.explained,
        "ideal": even(job, ideal, set(pieces)),
        **{f"stage {number}": even(job, ideal, {r for r in pieces if stage[r] != number}) for number in range(4)},
        **{f"dp rank {number}": even(job, ideal, {r for r in pieces if replica[r] != number}) for number in range(2)},
    }
    times = job.replay(*cases.values())
    begin = times[[job.node(rank, nodes.start_node)[nodes.singles].min() for rank, nodes in job.nodes.items()]].min(
        axis=0
    )
    lengths = (times.max(axis=0) - begin) / 1e9
    return {"step": step} | dict(zip(cases, lengths, strict=True))


def piece(own: pd.DataFrame) -> Piece:
    """A rank's operations in order; a receive that begins with a send is on a stream beside it."""
    start = own["start_ns"].to_numpy()
    beside = np.append(False, start[1:] == start[:-1]) & own["optype"].isin([*SENT, *SENT.values()]).to_numpy()
    order = np.argsort(beside, kind="stable")
    place = np.empty(len(own), dtype=np.int64)
    place[order] = np.arange(len(own))
    first = np.flatnonzero(beside)
    waits = np.concatenate(
        [
            np.stack([place[first[first > 1] - 2], place[first[first > 1]]], axis=1),
            np.stack([place[first[first + 1 < len(own)]], place[first[first + 1 < len(own)] + 1]], axis=1),
        ]
    )
    held = own.iloc[order].reset_index(drop=True)
    kind = np.where(held["optype"].isin([*COMPUTE, *LOCAL]), "compute", "comm")
    ops = pd.DataFrame(
        {
            "stream": beside[order].astype(np.int64), "start_ns": held["start_ns"], "duration_ns": held["duration_ns"],
            "kind": pd.Categorical(kind), "name": pd.Categorical(held["optype"]), "step": 0,
            "call": np.where(kind == "comm", np.arange(len(held)), -1), "launch": -1,
            "is_ring": False,
        }
    )  # fmt: skip
    host = pd.DataFrame(
        {name: np.empty(0, dtype=np.int64) for name in ("segment", "ns", "data_ns", "step", "is_launch")}
    )
    segments = pd.DataFrame({name: np.empty(0, dtype=np.int64) for name in ("begin_ns", "before", "own_ns", "step")})
    blocks = pd.DataFrame({name: np.empty(0, dtype=np.int64) for name in ("op", "segment", "is_own")})
    edges = pd.DataFrame({"source": waits[:, 0], "target": waits[:, 1], "is_recorded": True})
    steps = pd.DataFrame({"step": [-1], "begin_ns": ops["start_ns"].min(), "is_paused": False})
    return Piece(ops.assign(key=held["key"]), host, segments, edges, blocks, no_hosts()[3], steps,
                 why_no_host="the trace has no hosts")  # fmt: skip


def members(pieces: dict[int, Piece]) -> pd.DataFrame:
    """Calls of all ranks with the instance that they are part of."""
    rows = pd.concat(
        [own.ops[own.ops["call"] >= 0].assign(rank=rank) for rank, own in pieces.items()], ignore_index=True
    )
    size = rows.groupby("key")["rank"].transform("size")
    return pd.DataFrame(
        {
            "rank": rows["rank"], "call": rows["call"],
            "instance": pd.Series(pd.factorize(rows["key"])[0]).where(size.to_numpy() > 1).astype("Int64"),
            "start_ns": rows["start_ns"], "end_ns": rows["start_ns"] + rows["duration_ns"],
            "transfer_ns": pd.array([1] * len(rows), dtype="Int64"), "collective": rows["name"].astype("str"),
            "size_bytes": pd.array([pd.NA] * len(rows), dtype="Int64"),
            "wait_ns": pd.array([pd.NA] * len(rows), dtype="Int64"), "is_whole": True,
        }
    )  # fmt: skip


def even(job: Job, ideal: dict[str, int], ranks: set[int]) -> Lengths:
    """The lengths with these ranks' operations, and all transfers, ideal; nothing unexplained."""
    timing = {}
    for rank, own in job.explained.timing.items():
        ops = job.nodes[rank].piece.ops
        wanted = ops["name"].astype("str").map(ideal).to_numpy(dtype=np.int64)
        timing[rank] = replace(own, duration_ns=wanted) if rank in ranks else own
    transfer = job.recorded.transfer_ns.copy()
    for rank, rows in job.joins.groupby("rank").indices.items():
        if rank in ranks:
            names = job.nodes[rank].piece.ops["name"].astype("str").to_numpy()
            transfer[rows] = [ideal[names[op]] for op in job.joins["op"].to_numpy()[rows]]
    return Lengths(timing, transfer)


def beside(found: pd.DataFrame, published: dict) -> pd.DataFrame:
    """Measured here and published."""
    mean = found.mean()
    stages, replicas = published["blocking_decompose_by_stage"], published["blocking_decompose_by_dp_rank"]
    rows = [
        ("step as recorded, s", mean["recorded"], np.mean(list(published["step_t_base"].values()))),
        ("replayed without launch delays, s", mean["replayed"], np.mean(list(published["step_t_nodelay"].values()))),
        ("ideal step, s", mean["ideal"], np.mean(list(published["step_t_noblk"].values()))),
        ("slowdown", mean["replayed"] / mean["ideal"], published["blocking_slowdown"]),
        *((f"stage {n} alone", mean[f"stage {n}"] / mean["ideal"], stages[str(n)]) for n in range(4)),
        *((f"dp rank {n} alone", mean[f"dp rank {n}"] / mean["ideal"], replicas[str(n)]) for n in range(2)),
    ]
    return pd.DataFrame(rows, columns=["what", "this replay", "published"])


if __name__ == "__main__":
    main()
