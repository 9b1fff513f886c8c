"""What NCCL's own ranges say of its calls: operation; with payloads bytes, communicator, rank, world size."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.kinds import collective
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
        members: who joined what: `process`, `device` (NA when not stated), `communicator`, `rank`, `ranks`.
        has_payloads: whether any call's bytes are known.
    """

    calls: pd.DataFrame
    members: pd.DataFrame
    has_payloads: bool


def read_nccl(source: Source, ranges: pd.DataFrame) -> Nccl:
    """Calls among the NVTX ranges of NCCL's domain, with what their payloads say."""
    own = ranges[(ranges["domain"] == NCCL_DOMAIN).to_numpy()].reset_index(drop=True)
    fields = _fields(decode(source, own["payload"].tolist()))
    members = _members(own, fields)
    names = own["name"].astype(str)
    operations = names.map({name: collective(name) for name in names.unique()})
    is_call = operations.notna().to_numpy()
    calls = _calls(own[is_call], operations[is_call], fields[is_call], members)
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
    return joined.drop_duplicates(["process", "device", "communicator"], keep="last").reset_index(drop=True)


def _calls(own: pd.DataFrame, operations: pd.Series, fields: pd.DataFrame, members: pd.DataFrame) -> pd.DataFrame:
    known = members.drop_duplicates("communicator").set_index("communicator")["ranks"]
    group_size = fields["communicator"].map(known).astype("Int64")
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
            "group": fields["communicator"].map(communicator_name, na_action="ignore").astype("category"),
            "group_size": group_size,
            "reduction": fields["reduction"].str.lower().astype("category"),
            "root": fields["root"],
            "peer": fields["peer"],
            "size_bytes": size,
        }
    ).reset_index(drop=True)


def communicator_name(communicator: int) -> str:
    """A communicator's id as text, the same on all of its ranks."""
    return f"0x{communicator & 0xFFFF_FFFF_FFFF_FFFF:x}"
