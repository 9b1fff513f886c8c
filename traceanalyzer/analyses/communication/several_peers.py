"""Transfer and wait of calls that exchange messages with several peers: rings, middle stages of pipelines."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.clock_offsets import chained_offsets


def with_several_peers(members: pd.DataFrame) -> pd.DataFrame:
    """The table with `ends_together`, and with what the last peer's start tells of calls that have several.

    Such a call ends with the last of its messages, so that the durations of the others bound nothing: its transfer is
    what follows the last start of all its instances. That needs the ranks' clocks, which other instances tell; where
    none does, the shortest duration stays.
    """
    matched = members["instance"].notna()
    calls = [members["rank"], members["call"]]
    is_several = members["instance"].groupby(calls).transform("nunique") > 1
    is_joint = is_several.groupby(members["instance"]).transform("any").where(matched, other=False).astype(bool)
    synchronises = members["is_synchronising"].fillna(value=False).astype(bool)
    members = members.assign(ends_together=(synchronises & matched & ~is_joint).astype("boolean"))
    is_split = is_joint & members["transfer_ns"].notna()
    if not is_split.any():
        return members
    clocks = pd.DataFrame.from_dict(
        chained_offsets(members[members["ends_together"].to_numpy(dtype=bool)]),
        orient="index", columns=["reference", "offset_ns", "spread_ns", "instances"], dtype="int64",
    )  # fmt: skip
    held = members.loc[is_split, ["rank", "call", "instance", "start_ns", "end_ns"]]
    held = held.assign(reference=held["rank"].map(clocks["reference"]), offset=held["rank"].map(clocks["offset_ns"]))
    references = held.groupby("instance")["reference"]
    is_one_clock = references.transform("count").eq(references.transform("size")) & references.transform("min").eq(
        references.transform("max")
    )
    held = held.assign(is_told=is_one_clock.groupby([held["rank"], held["call"]]).transform("all"))[is_one_clock]
    return _by_last_start(members, held) if held["is_told"].any() else members


def _by_last_start(members: pd.DataFrame, held: pd.DataFrame) -> pd.DataFrame:
    """The rows that are told, split where the last peer of the call, in any of its instances, has started."""
    offset = held["offset"].astype("int64")
    start = held["start_ns"] - offset
    latest = held.loc[start.groupby(held["instance"]).idxmax(), ["instance", "rank"]].set_index("instance")["rank"]
    ready = start.groupby(held["instance"]).transform("max")
    calls = ready.groupby([held["rank"], held["call"]])
    decides = held["instance"].where(ready == calls.transform("max")).groupby([held["rank"], held["call"]])
    awaited = decides.transform("first").map(latest).astype("Int64")
    duration = held["end_ns"] - held["start_ns"]
    transfer = np.minimum((held["end_ns"] - offset - calls.transform("max")).clip(lower=0), duration).astype("Int64")
    split = pd.DataFrame(
        {
            "transfer_ns": transfer,
            "wait_ns": duration.astype("Int64") - transfer,
            "waits_for": awaited.where(awaited != held["rank"]),
        }
    )[held["is_told"]]
    made = members.copy()
    made.loc[split.index, list(split)] = split
    return made
