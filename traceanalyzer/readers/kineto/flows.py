"""The profiler's arrows from forward to backward operators, where a capture lost the numbers that say the same.

Operators carry autograd's sequence number, from which the profiler makes its `fwdbwd` flows. Traces that tools have
thinned of their arguments keep the flows alone. Only such a file is read a second time.
"""

import re
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from traceanalyzer.decoding.columns import to_ns
from traceanalyzer.decoding.stream import EventText

CATEGORY = b"fwdbwd"

_ARROW = re.compile(rb'\{[^{}]*"fwdbwd"[^{}]*\}')


class _End(msgspec.Struct, gc=False):
    """Where an arrow begins (`s`) or ends (`f`): at an operator's thread and start, in µs."""

    ph: str
    id: int | str
    tid: int
    ts: Decimal


def linked(path: Path, host_ops: pd.DataFrame, base_ns: int) -> pd.DataFrame:
    """The operators, with the arrows' numbers as sequence numbers where none has one of its own."""
    if host_ops.empty or host_ops["sequence"].notna().any():
        return host_ops
    ends = _ends(path)
    if ends.empty:
        return host_ops
    ends["start_ns"] += base_ns
    # Of operators that start together on a thread the first is the one around the others.
    first = host_ops.reset_index(drop=True).reset_index(names="row").drop_duplicates(["thread", "start_ns"])
    ends = ends.merge(first[["thread", "start_ns", "row"]], on=["thread", "start_ns"])
    begins = ends[ends["is_begin"]].drop_duplicates("id").set_index("id")
    targets = ends[~ends["is_begin"] & ends["id"].isin(begins.index)].drop_duplicates("id")
    sequence, thread = (np.full(len(host_ops), -1, dtype=np.int64) for _ in range(2))
    sequence[begins["row"]] = begins.index
    sequence[targets["row"]] = targets["id"]
    thread[targets["row"]] = begins["thread"].loc[targets["id"]]
    return host_ops.assign(sequence=_known(sequence), forward_thread=_known(thread))


def _ends(path: Path) -> pd.DataFrame:
    """Every arrow's two ends: its number in the file, thread and time without the file's base."""
    decode = msgspec.json.Decoder(_End).decode
    found: list[_End] = []
    for chunk in EventText.open(path).chunks():
        for text in _ARROW.findall(chunk) if CATEGORY in chunk else ():
            try:
                found.append(decode(text))
            except msgspec.DecodeError:  # damaged, or written by others: no arrow that can be followed
                continue
    return pd.DataFrame(
        {
            "id": pd.factorize(np.array([str(end.id) for end in found], dtype=object))[0],
            "is_begin": [end.ph == "s" for end in found],
            "thread": np.array([end.tid for end in found], dtype=np.int64),
            "start_ns": to_ns([end.ts for end in found]),
        }
    )


def _known(numbers: np.ndarray) -> pd.Series:
    return pd.Series(pd.array(numbers, dtype="Int64")).mask(numbers < 0)
