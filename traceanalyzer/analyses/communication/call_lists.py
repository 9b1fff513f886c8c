"""The columns of all ranks' calls as arrays, in the form in which they are aligned."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.communication.candidates import CallList, near_of
from traceanalyzer.analyses.communication.offset_vote import BIN_NS
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, columns_of

NOT_WAITING_ALIKE = (*kinds.ROOTED, *kinds.EXPERTS, "rma", "unknown")
"""Collectives whose ranks do not wait for each other alike."""

NO_ARGUMENTS = "the trace does not say its process group"
NO_PEER = "the trace does not say its peers"
PEER_COPY = "a copy between GPUs has no counterpart"
TO_ITSELF = "a message of a rank to itself waits for nobody"
GROUP_UNKNOWN = "the ranks of its group are not known"
OF_ONE_RANK = "a group of one rank waits for nobody"
RANK_MISSING = "a rank of its group has no trace"
RANK_CUT = "a rank of its group has a file that is cut off before"
NOT_ON_ALL = "not seen on every rank of its group"


class CallLists:
    """Columns of the calls as arrays, from which a `CallList` of some rows is taken."""

    def __init__(self, calls: pd.DataFrame) -> None:
        self.rank = array_of(calls, "rank")
        self.start_ns = array_of(calls, "start_ns")
        self.end_ns = array_of(calls, "end_ns")
        self._step = calls["step"].fillna(NONE).to_numpy(dtype=np.int64)
        self._sequence = calls["sequence"].fillna(NONE).to_numpy(dtype=np.int64)
        self._signature = _signatures(calls)
        self._dtype = pd.factorize(calls["dtype"])[0]
        self._synchronises = synchronises(calls)

    def of(self, rows: np.ndarray) -> CallList:
        """Calls of one rank in one group."""
        signature = self._signature[rows]
        near_ns = near_of(self.end_ns[rows] - self.start_ns[rows], signature)
        return CallList(
            self.end_ns[rows], signature, self._step[rows], self._sequence[rows], self._synchronises[rows], near_ns
        )

    def of_messages(self, rows: np.ndarray, is_end: np.ndarray, *, are_sends: bool) -> CallList:
        """Messages between two ranks: both ends are mostly the same moment; coalesced ones hide their own sizes.

        `is_end`: the call's end is the message's.
        """
        unknown, near_ns = np.full(len(rows), NONE), np.full(len(rows), BIN_NS)
        return CallList(self.end_ns[rows], self._dtype[rows], self._step[rows], unknown, is_end, near_ns, are_sends)


def synchronises(calls: pd.DataFrame) -> np.ndarray:
    """Collectives whose ranks all wait for each other: neither rooted, nor all-to-alls that are or may be uneven."""
    is_uneven = calls["is_uneven"].fillna(value=(calls["collective"] == "all_to_all")).to_numpy(dtype=bool)
    is_alike: np.ndarray = ~calls["collective"].isin(NOT_WAITING_ALIKE).to_numpy() & ~is_uneven
    return is_alike


def is_peer_copy(calls: pd.DataFrame) -> np.ndarray:
    """Peer-to-peer copies, those too that carry out a collective of the operator that launched them."""
    is_copy = calls["collective"] == "peer_copy"
    mask: np.ndarray = (is_copy | (calls["activity"] == "memcpy") if "activity" in calls else is_copy).to_numpy()
    return mask


def moves_only(calls: pd.DataFrame) -> np.ndarray:
    """Copies between GPUs, and kernels that send without waiting for anybody."""
    mask: np.ndarray = is_peer_copy(calls) | (waits_of(calls) == kinds.NEVER).to_numpy()
    return mask


def sizes_from(arguments: Iterable[str]) -> str | None:
    """What else than their own arguments tells the sizes of some calls; `None` where nothing does."""
    found = sorted(set(arguments) - {"kernel", "host"})
    return ", ".join(found) or None


SIZES_FROM = (
    "Where the sizes of some of the calls are not their own: operator (the dimensions of the one that launched them), "
    "inferred (from a later step), or host, size inferred (by who calls the communicator); absent where all are."
)


def waits_of(calls: pd.DataFrame) -> pd.Series:
    """What each call's duration holds by its kernel: `only` waiting, waiting for `peers` too, `no` waiting; else NA."""
    return pd.Series(told_of_kernels(calls, lambda kernel: kernel and kernel.waits), index=calls.index, dtype="object")


def told_of_kernels(calls: pd.DataFrame, tell: Callable[[kinds.CommKernel | None], Any]) -> np.ndarray:
    """What is told of each call's kernel, which is looked up once for each name."""
    codes, names = pd.factorize(column_of(calls, "name"), use_na_sentinel=False)
    told: np.ndarray = np.array([tell(kinds.comm_kernel(str(name))) for name in names], dtype=object)[codes]
    return told


def _signatures(calls: pd.DataFrame) -> np.ndarray:
    """Equal for calls that can be one collective: operation, dtype and sizes, else kernel and grid.

    Ranks of an all-to-all may send different sizes.
    """
    columns = columns_of(calls)
    sizes = calls["size_bytes"].to_numpy(dtype=np.int64, na_value=NONE)
    sizes = np.where((calls["collective"] == "all_to_all").to_numpy(), NONE, sizes)
    of_names, names = columns | {"size_bytes": sizes}, (("collective", "dtype", "size_bytes"), ("name", "grid"))
    arguments, kernel = (Groups.of(of_names, own, with_absent=True).of_row for own in names)
    return np.where(calls["group"].isna().to_numpy(), len(calls) + kernel, arguments)
