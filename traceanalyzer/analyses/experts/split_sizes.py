"""What the split sizes of an all-to-all say: bytes that each rank sends to, keeps for, and receives from each one."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.kinds import dtype_bytes
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import column_of

GROUP = ("group", "group_ranks")

DISPATCH, COMBINE, EXCHANGE = "dispatch", "combine", "exchange"


def of_calls(_trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """The rank's all-to-alls that carry split sizes in full and whose group is known, and its ranks or their number.

    `sends` and `receives` are tuples of bytes, one for each rank of the group (`ranks`, where the trace names them:
    `group_ranks` is empty else, see `ranks_of`); `direction` is dispatch, combine or exchange. A list that PyTorch
    leaves out is an even split.
    """
    if not len(calls) or not (calls["collective"] == "all_to_all").any():
        return calls.iloc[:0]
    own = calls[(calls["collective"] == "all_to_all") & (calls["in_split"].notna() | calls["out_split"].notna())]
    element = own["dtype"].astype("object").map(dtype_bytes, na_action="ignore").astype("Int64")
    own = own.assign(
        ranks=own["group_ranks"].astype("object").map(lambda text: numbers(text) or None),
        sent_bytes=own["in_elements"] * element,
        received_bytes=own["out_elements"] * element,
    )
    own = own.assign(**_said_in_bytes(own))
    count = own["ranks"].map(len, na_action="ignore").astype("Int64")
    own = own.assign(count=count.fillna(own["group_size"].where(own["group_ranks"].isna())))
    own = own[own[["group", "count", "sent_bytes", "received_bytes"]].notna().all(axis=1)]
    own = own.assign(
        group_ranks=own["group_ranks"].astype("object").fillna(""),
        sends=_shared(own["in_split"], own["sent_bytes"], own["count"]),
        receives=_shared(own["out_split"], own["received_bytes"], own["count"]),
    )
    own = own[own["sends"].notna() & own["receives"].notna()]
    return own.assign(direction=_directions(own))


def ranks_of(members: pd.DataFrame) -> dict[str, tuple[int, ...]]:
    """The ranks that call each group whose ranks no trace names, in order: all of them where they are as many."""
    own = members[members["group"].notna() & members["group_ranks"].isna()]
    return {str(group): tuple(sorted(set(ranks))) for group, ranks in own.groupby("group", observed=True)["rank"]}


def _said_in_bytes(own: pd.DataFrame) -> dict[str, pd.Series]:
    """`sent_bytes` and `received_bytes`, from splits that are bytes: of calls whose size is what they send together."""
    sums = [
        own[name].astype("object").map(_sum, na_action="ignore").astype("Int64") for name in ("in_split", "out_split")
    ]
    is_bytes = (own["in_elements"].isna() & (sums[0] == own["size_bytes"])).fillna(value=False)
    names = ("sent_bytes", "received_bytes")
    return {name: own[name].fillna(total.where(is_bytes)) for name, total in zip(names, sums, strict=True)}


def _sum(split: str) -> int | None:
    sizes = numbers(split)
    return sum(sizes) if sizes else None


def _directions(own: pd.DataFrame) -> np.ndarray:
    """dispatch, combine or exchange for each all-to-all, each group's in order.

    A combine takes back what the all-to-all before it has brought: its splits are those of the other way round. Layers
    of equal splits look alike from dispatch to combine and from combine to dispatch; a step begins with a dispatch, so
    that outside steps nothing is told.
    """
    found = np.full(len(own), EXCHANGE, dtype=object)
    step = own["step"].fillna(NONE).to_numpy(dtype=np.int64)
    sends, receives = (own[name].astype("object").to_numpy() for name in ("in_split", "out_split"))
    groups = Groups.of({**{name: column_of(own, name) for name in GROUP}, "step": step}, [*GROUP, "step"]).of_row
    for rows in rows_of_each(groups):
        if step[rows[0]] != NONE:
            found[rows] = _of_step(sends[rows].tolist(), receives[rows].tolist())
    return found


def _of_step(sends: Sequence[object], receives: Sequence[object]) -> list[str]:
    is_back = [
        place > 0 and (sends[place], receives[place]) == (receives[place - 1], sends[place - 1])
        for place in range(len(sends))
    ]
    return _alternating(is_back)


def _alternating(is_back: Sequence[bool]) -> list[str]:
    found: list[str] = []
    for back in is_back:
        if back and found[-1] != COMBINE:
            found[-1] = DISPATCH
            found.append(COMBINE)
        else:
            found.append(EXCHANGE)
    return found


def _shared(splits: pd.Series, total_bytes: pd.Series, counts: pd.Series) -> pd.Series:
    """Bytes by rank: the total in proportion to the sizes; `None` where the list is cut or of another length."""
    rows = zip(splits.astype("object"), total_bytes.tolist(), counts.tolist(), strict=True)
    shared = [_bytes(text, total, count) for text, total, count in rows]
    return pd.Series(shared, index=splits.index, dtype="object")


def _bytes(text: object, total_bytes: int, count: int) -> tuple[int, ...] | None:
    parts = text.split(",") if isinstance(text, str) and text else ["1"] * count
    if len(parts) != count or not all(part.isdecimal() for part in parts):
        return None
    sizes = [int(part) for part in parts]
    return tuple(total_bytes * size // (sum(sizes) or 1) for size in sizes)
