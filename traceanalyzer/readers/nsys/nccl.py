"""What NCCL's own ranges say of its calls: operation; with payloads bytes, communicator, rank, world size."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from traceanalyzer.kinds import POINT_TO_POINT, collective
from traceanalyzer.readers.nsys.grouped import brackets, with_all_to_alls
from traceanalyzer.readers.nsys.introductions import introduced
from traceanalyzer.readers.nsys.nvtx import NCCL_DOMAIN
from traceanalyzer.readers.nsys.payloads import decode
from traceanalyzer.readers.nsys.source import Source

_FIELDS = {
    "communicator": re.compile(r"communicator", re.IGNORECASE),
    "message_bytes": re.compile(r"message size|\[bytes\]", re.IGNORECASE),
    "ranks": re.compile(r"(no\.|number) of ranks", re.IGNORECASE),
    "rank": re.compile(r"^rank$", re.IGNORECASE),
    "device": re.compile(r"cuda device", re.IGNORECASE),
    "peer": re.compile(r"peer", re.IGNORECASE),
    "root": re.compile(r"root", re.IGNORECASE),
    "reduction": re.compile(r"reduction", re.IGNORECASE),
}
"""Our name → what NCCL's versions call the payload's field."""

# NCCL states one rank's message; the size of these is the full array, so times the ranks.
_TIMES_RANKS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class Nccl:
    """NCCL's host calls of all processes.

    Attributes:
        calls: columns of `model.COMM_ARGS` that NCCL states, and `process`.
        members: who joined what: `process`, `device` (NA when not stated), `communicator` (its name), `rank` in it,
            its `ranks`, and where the program names them `group_ranks` and `description`.
        has_payloads: whether any call's bytes are known.
        inferred: calls whose size and number of ranks are inferred, see `with_inferred_sizes`.
    """

    calls: pd.DataFrame
    members: pd.DataFrame
    has_payloads: bool
    inferred: int = 0


def read_nccl(source: Source, ranges: pd.DataFrame) -> Nccl:
    """Calls among the NVTX ranges of NCCL's domain, with what their payloads say."""
    own = ranges[(ranges["domain"] == NCCL_DOMAIN).to_numpy()].reset_index(drop=True)
    fields = _fields(decode(source, own["payload"].tolist()))
    numbers = fields["communicator"].astype("object")  # pandas 3.0 maps whole numbers as floats where some are absent
    fields["communicator"] = numbers.map(communicator_name, na_action="ignore").astype("object")
    told = introduced(ranges, own[["process", "thread", "start_ns"]].assign(communicator=fields["communicator"]))
    members = pd.concat([_members(own, fields), told], ignore_index=True)
    fields["communicator"] = fields["communicator"].fillna(own["process"].map(_only_group(told)))
    names = own["name"].astype(str)
    operations = names.map({name: collective(name) for name in names.unique()})
    is_call = operations.notna().to_numpy()
    calls = _calls(own[is_call], operations[is_call], fields[is_call], members)
    calls = with_all_to_alls(calls, brackets(own)[is_call].reset_index(drop=True))
    return Nccl(calls, members, bool(fields["message_bytes"].notna().any()))


def _fields(decoded: pd.DataFrame) -> pd.DataFrame:
    found = {}
    for ours, pattern in _FIELDS.items():
        column = pd.Series(pd.NA, index=decoded.index, dtype="str" if ours == "reduction" else "Int64")
        for name in decoded.columns:
            if pattern.search(str(name)) and decoded[name].dtype == column.dtype:
                column = column.fillna(decoded[name])
        found[ours] = column
    return pd.DataFrame(found)


def _members(own: pd.DataFrame, fields: pd.DataFrame) -> pd.DataFrame:
    """Rows of ncclCommInit*, which alone state rank and number of ranks."""
    joined = fields[["communicator", "rank", "ranks", "device"]].assign(process=own["process"])
    joined = joined[joined["rank"].notna() & joined["ranks"].notna() & joined["communicator"].notna()]
    joined = joined.drop_duplicates(["process", "device", "communicator"], keep="last").reset_index(drop=True)
    return joined.assign(group_ranks=None, description="")


def _only_group(told: pd.DataFrame) -> pd.Series:
    """The group of every call of a process whose program names one group only, by process."""
    names = told.groupby("process")["communicator"].agg(["nunique", "first"])
    return names.loc[names["nunique"] == 1, "first"]


def _calls(own: pd.DataFrame, operations: pd.Series, fields: pd.DataFrame, members: pd.DataFrame) -> pd.DataFrame:
    # What the program says of a communicator comes after what NCCL says, and says more.
    known = members.drop_duplicates("communicator", keep="last").set_index("communicator")
    group_size = fields["communicator"].map(known["ranks"]).astype("Int64")
    is_part = operations.isin(_TIMES_RANKS)
    size = fields["message_bytes"].where(~is_part, fields["message_bytes"] * group_size)
    return pd.DataFrame(
        {
            "process": own["process"],
            "gpu_op": np.full(len(own), -1),
            "start_ns": own["start_ns"],
            "end_ns": own["end_ns"],
            "thread": own["thread"],
            "collective": operations.astype("category"),
            "group": fields["communicator"].astype("category"),
            "group_description": fields["communicator"].map(known["description"]).replace("", pd.NA).astype("category"),
            "group_ranks": fields["communicator"].map(known["group_ranks"]).astype("category"),
            "group_size": group_size,
            "reduction": fields["reduction"].str.lower().astype("category"),
            "root": fields["root"],
            "peer": fields["peer"],
            "size_bytes": size,
            "message_bytes": fields["message_bytes"],
            "has_inferred_size": False,
        }
    ).reset_index(drop=True)


def with_inferred_sizes(nccl: Nccl) -> Nccl:
    """Communicators of unknown size have as many ranks as there are processes whose calls name them.

    For exports that may hold the whole job: of a communicator that reaches beyond it the sizes would be too small.
    """
    calls = nccl.calls
    shared = calls.groupby("group", observed=True)["process"].nunique()
    ranks = calls["group"].map(shared.where(shared > 1)).astype("Int64")
    is_bare = calls["group_size"].isna() & ranks.notna() & ~calls["collective"].isin(POINT_TO_POINT)
    if not is_bare.any():
        return nccl
    is_part = is_bare & calls["collective"].isin(_TIMES_RANKS)
    size = calls["size_bytes"].fillna((calls["message_bytes"] * ranks).where(is_part))
    is_inferred = is_part & size.notna()
    told = calls.assign(
        group_size=calls["group_size"].mask(is_bare, ranks), size_bytes=size, has_inferred_size=is_inferred
    )
    return replace(nccl, calls=told, inferred=int(is_inferred.sum()))


def with_only_peers(calls: pd.DataFrame, rank_of: Mapping[int, int]) -> pd.DataFrame:
    """Sends and receives of unknown peers, where two processes are all that there is: the other one is the peer.

    Args:
        calls: of all processes.
        rank_of: the global rank of each process of the export.

    It is not, where the two do not receive as much as the other sends: then they have peers outside the export.
    """
    is_bare = calls["peer"].isna() & calls["collective"].isin(("send", "recv"))
    if len(rank_of) != 2 or not is_bare.any():
        return calls
    own = calls[is_bare]
    counts = own.groupby(["process", "collective"], observed=True).size()
    one, two = rank_of
    if any(counts.get((a, "send"), 0) != counts.get((b, "recv"), 0) for a, b in ((one, two), (two, one))):
        return calls
    others = {one: rank_of[two], two: rank_of[one]}
    ranks = ",".join(map(str, sorted(rank_of.values())))
    # Peers are numbered within their group, and so are those of the group of both; of another it cannot be said.
    is_told = is_bare & (calls["group"].isna() | (calls["group_ranks"] == ranks))
    places = {process: sorted(rank_of.values()).index(rank) for process, rank in others.items()}
    peers = calls["process"].map(others).where(calls["group"].isna(), calls["process"].map(places))
    return calls.assign(peer=calls["peer"].mask(is_told, peers.astype("Int64")))


def communicator_name(communicator: int) -> str:
    """A communicator's id as text, the same on all of its ranks."""
    return f"0x{communicator & 0xFFFF_FFFF_FFFF_FFFF:x}"
