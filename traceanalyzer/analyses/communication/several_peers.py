"""Transfer and wait of calls that exchange messages with several peers: rings, middle stages of pipelines."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.clock_offsets import chained_offsets
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import with_columns


def with_several_peers(members: pd.DataFrame, hosts: Mapping[int, str]) -> pd.DataFrame:
    """The table with `ends_together` and `is_timed`; instances of calls with several peers are split by the last start.

    Such a call ends with the last of its messages, so that its duration bounds nothing for the peers of the others: in
    each of its instances transfer is what follows the last start. That needs the ranks' clocks (`chained_offsets`);
    where nothing tells of them, the shortest duration stays, which may be a wait for another peer (not `is_timed`).
    """
    instances, calls = Groups.of(members, ["instance"]), Groups.of(members, ["rank", "call"])
    is_several = calls.largest(instances.of_row) != calls.smallest(instances.of_row)
    is_joint = np.append(instances.any(is_several[calls.of_row]), False)[instances.of_row]
    ends_together = is_true(members["is_synchronising"]).to_numpy() & (instances.of_row != NONE) & ~is_joint
    members = with_columns(members, ends_together=pd.array(ends_together, dtype="boolean"), is_timed=~is_joint)
    is_split = is_joint & members["transfer_ns"].notna()
    if not is_split.any():
        return members
    clocks = pd.DataFrame.from_dict(
        chained_offsets(members, hosts, by_last_message=False),
        orient="index", columns=["reference", "offset_ns", "spread_ns", "instances"], dtype="int64",
    )  # fmt: skip
    held = members.loc[is_split, ["rank", "instance", "start_ns", "end_ns"]]
    held = held.assign(reference=held["rank"].map(clocks["reference"]), offset=held["rank"].map(clocks["offset_ns"]))
    clock = held.groupby("instance")["reference"]
    is_one = (clock.transform("count") == clock.transform("size")) & (clock.transform("min") == clock.transform("max"))
    return _by_last_start(members, held[is_one]) if is_one.any() else members


def _by_last_start(members: pd.DataFrame, held: pd.DataFrame) -> pd.DataFrame:
    """The rows of `held` split where the last call of the instance has started."""
    offset = held["offset"].astype("int64")
    start, duration = held["start_ns"] - offset, held["end_ns"] - held["start_ns"]
    instances = start.groupby(held["instance"])
    last = held.loc[instances.idxmax(), ["instance", "rank"]].set_index("instance")["rank"]
    after = (held["end_ns"] - offset - instances.transform("max")).clip(lower=0)
    transfer = np.minimum(after, duration)
    awaited = held["instance"].map(last).astype("Int64")
    made = members.copy()
    made.loc[held.index, "is_timed"] = True
    made.loc[held.index, "transfer_ns"] = transfer.astype("Int64")
    made.loc[held.index, "wait_ns"] = (duration - transfer).astype("Int64")
    made.loc[held.index, "waits_for"] = awaited.where(awaited != held["rank"])
    return made
