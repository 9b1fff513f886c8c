"""Why the last rank of each instance came late, and for whom it was itself waiting."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.communication.members import UNTIL
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES
from traceanalyzer.model.schema import NONE

WAIT = "wait"

CAUSES: Mapping[str, str] = {
    "compute_ns": "compute",
    "exposed_copy_ns": "copies",
    "transfer_ns": "transfer",
    "exposed_wait_ns": WAIT,
    **{cause.column: cause.key for cause in IDLE_CAUSES},
}
"""What each part is called; together they make up all of a rank's time between two moments.

`transfer` is all exposed communication that is not known to be a wait: calls that could not be split too.
"""


def instance_causes(members: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """For each instance that synchronises: its last rank, why that came late, and the root of it.

    Between the ends of the previous instance of the same group and of this one, every rank's parts add up to the
    same length. A part's excess is the last rank's part minus the others' median; the cause is the part with the
    largest. The wait in the instance itself, which is what is to be explained, is a part of its own; `wait` is all
    other. If that is the cause, the last rank's longest wait in between leads to another instance, and so on to the
    root.

    Returns:
        indexed by instance: `last_rank`, `cause` (`None` for a group's first instance), `root` (an instance) and an
        excess column for each of `CAUSES`.
    """
    held = members[members["transfer_ns"].notna()].copy()
    held["exposed_wait_until_ns"] = _wait_until(held, waits)
    held["transfer_until_ns"] = held[UNTIL["exposed_comm_ns"]] - held["exposed_wait_until_ns"]
    held["scope"] = _scopes(held)
    held = held.sort_values(["scope", "rank", "instance"], ignore_index=True)
    spans = _spans(held)
    spans["exposed_wait_ns"] -= _own_wait(held, waits)
    is_last = held["waits_for"].isna().to_numpy()
    excess = _excess(spans, held["instance"].to_numpy(), is_last)
    last = held[is_last].set_index("instance")
    table = excess.assign(last_rank=last["rank"].reindex(excess.index), cause=_cause(excess))
    begins = held["end_ns"].groupby([held["scope"], held["rank"]]).shift()[is_last].set_axis(last.index)
    source = _waited_in(table, begins.reindex(table.index), last["end_ns"].reindex(table.index), members, waits)
    return table.assign(root=_roots(table.index.to_numpy(dtype=np.int64), source))


def _wait_until(held: pd.DataFrame, waits: pd.DataFrame) -> np.ndarray:
    """Exposed wait of each row's rank until the row's end."""
    until = np.zeros(len(held), dtype=np.int64)
    pieces = waits.groupby("rank").indices if len(waits) else {}
    for rank, rows in held.groupby("rank").indices.items():
        if rank in pieces:
            own = waits.iloc[pieces[rank]].sort_values("start_ns")
            wait = Intervals(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
            ends = held["end_ns"].to_numpy()[rows]
            until[rows] = wait.covered_ns(np.full(len(rows), wait.starts[0]), np.maximum(ends, wait.starts[0]))
    return until


def _own_wait(held: pd.DataFrame, waits: pd.DataFrame) -> np.ndarray:
    """Exposed wait of each row's call in the row's own instance."""
    lengths = (waits["end_ns"] - waits["start_ns"]).groupby([waits["rank"], waits["instance"]]).sum()
    own: np.ndarray = lengths.reindex(pd.MultiIndex.from_frame(held[["rank", "instance"]]), fill_value=0).to_numpy()
    return own


def _scopes(held: pd.DataFrame) -> np.ndarray:
    """Instances that follow each other on the same ranks: of one process group, or of the same two ranks."""
    lowest, highest = (held["rank"].groupby(held["instance"]).transform(name) for name in ("min", "max"))
    is_message = held["collective"].isin(kinds.POINT_TO_POINT)
    group = pd.factorize(held["group"].astype("str") + "\n" + held["group_ranks"].astype("str"))[0]
    keys = pd.DataFrame(
        {"group": group, "low": lowest.where(is_message, NONE), "high": highest.where(is_message, NONE)}
    )
    scopes: np.ndarray = keys.groupby(["group", "low", "high"]).ngroup().to_numpy()
    return scopes


def _spans(held: pd.DataFrame) -> pd.DataFrame:
    """Parts of each row's rank since the end of the previous instance of its scope; NA for the first."""
    until = {part: UNTIL.get(part, part.replace("_ns", "_until_ns")) for part in CAUSES}
    groups = held[list(until.values())].groupby([held["scope"], held["rank"]])
    return groups.diff().rename(columns={column: part for part, column in until.items()})


def _excess(spans: pd.DataFrame, instance: np.ndarray, is_last: np.ndarray) -> pd.DataFrame:
    others = spans[~is_last].groupby(instance[~is_last]).median()
    last = spans[is_last].set_axis(instance[is_last])
    # Two ranks may tie; the first row speaks for the instance.
    last = last[~last.index.duplicated()]
    return (last - others).round().astype("Int64").rename_axis("instance")


def _cause(excess: pd.DataFrame) -> pd.Series:
    parts = excess[list(CAUSES)]
    is_known = parts.notna().all(axis=1)
    names = np.array(list(CAUSES.values()), dtype=object)
    found = names[parts.fillna(0).to_numpy(dtype=np.int64).argmax(axis=1)] if len(parts) else names[:0]
    return pd.Series(found, index=excess.index, dtype="object").where(is_known, None)


def _waited_in(
    table: pd.DataFrame, begins: pd.Series, ends: pd.Series, members: pd.DataFrame, waits: pd.DataFrame
) -> np.ndarray:
    """For each instance whose last rank was itself waiting, the instance of its longest wait; -1 for others."""
    source = np.full(len(table), NONE, dtype=np.int64)
    if waits.empty:
        return source
    lengths = (waits["end_ns"] - waits["start_ns"]).groupby([waits["rank"], waits["call"], waits["instance"]]).sum()
    calls = lengths.rename("wait_ns").reset_index()
    calls = calls.merge(members[["rank", "call", "end_ns"]].drop_duplicates(["rank", "call"]))
    by_rank = {rank: part.sort_values("end_ns") for rank, part in calls.groupby("rank")}
    for row in np.flatnonzero((table["cause"] == WAIT).to_numpy()):
        own = by_rank.get(table["last_rank"].iloc[row])
        if own is not None:
            low, high = np.searchsorted(own["end_ns"].to_numpy(), [begins.iloc[row] + 1, ends.iloc[row]])
            if low < high:
                source[row] = own["instance"].to_numpy()[low + own["wait_ns"].to_numpy()[low:high].argmax()]
    return source


def _roots(instance: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Follow the sources to their ends; a circle ends where it began."""
    place = np.searchsorted(instance, source)
    place = np.where(np.append(instance, NONE)[np.minimum(place, len(instance))] == source, place, NONE)
    position = np.where(place == NONE, np.arange(len(instance)), place)
    for _ in range(max(1, len(instance).bit_length())):
        position = position[position]
    is_circle = position[position] != position
    roots: np.ndarray = instance[np.where(is_circle, np.arange(len(instance)), position)]
    return roots
