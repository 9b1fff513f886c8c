"""For whom each moment of a wait is: the ranks that others wait for, followed through their own waits."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.exposed_comm import exposed_of
from traceanalyzer.analyses.communication.waits import cut_by_calls, overlapping
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import picked, table_of, under_each_other

_COLUMNS = ("rank", "start_ns", "end_ns", "instance", "waits_for", "root_rank")

_NO_WAITS = table_of({"start_ns": [], "end_ns": [], "waits_for": []}).astype("int64")


def awaited(
    waits: pd.DataFrame, exposed: Mapping[int, pd.DataFrame], calls: pd.DataFrame, offsets: Mapping[int, int]
) -> pd.DataFrame:
    """The stretches of wait, cut by the rank that each moment of them is waited for.

    While the awaited rank itself only waits for a third one, beside a transfer on another stream or not, the third one
    is awaited. While it is in a call of which nobody can tell how much is waiting, it is not known who is. A circle,
    which clocks that are a little apart can make, ends where it closes.

    Args:
        waits: table of `Waits`, on each rank's own clock.
        exposed: for each rank the stretches in which communication but no compute runs.
        calls: table of `CallWaits`.
        offsets: by how much each rank's clock is ahead.

    Returns:
        columns of `waits` and `root_rank` (`NONE` where it is not known), on the clocks of the ranks that wait; lengths
        add up to the waits'.
    """
    of_rank = dict(iter(calls.groupby("rank"))) if len(calls) else {}
    own = {
        rank: _on_one_clock(_idle_in_calls(exposed_of(part), of_rank[rank]), offsets.get(rank, 0))
        for rank, part in exposed.items()
        if rank in of_rank
    }
    shift = waits["rank"].map(offsets).fillna(0).astype("int64")
    held = waits.assign(start_ns=waits["start_ns"] - shift, end_ns=waits["end_ns"] - shift)
    pieces = held[held["waits_for"].notna()].assign(root_rank=lambda rows: rows["waits_for"].astype("int64"))
    done = [pieces.iloc[:0]]
    for _ in range(len(own)):
        if pieces.empty:
            break
        stays, moves = _followed(pieces, own)
        done.append(stays)
        pieces = moves
    table = under_each_other([*done, pieces])[list(_COLUMNS)]
    back = table["rank"].map(offsets).fillna(0).astype("int64")
    return table.assign(start_ns=table["start_ns"] + back, end_ns=table["end_ns"] + back)


def _idle_in_calls(exposed: Intervals, calls: pd.DataFrame) -> pd.DataFrame:
    """Stretches in which the rank computes nothing and waits, or may: `waits_for` is `NONE` where that is not known."""
    starts, ends = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    is_unknown, has_none = (calls[name].isna().to_numpy() for name in ("wait_ns", "waits_for"))
    wait_ns, waits_for = (calls[name].to_numpy(np.int64, na_value=NONE) for name in ("wait_ns", "waits_for"))
    wait_ns = np.where(is_unknown, ends - starts, wait_ns)
    whom = pd.arrays.IntegerArray(np.where(is_unknown, NONE, waits_for), has_none & ~is_unknown)
    rows = np.flatnonzero(wait_ns > 0)
    waiting = Intervals.of(starts[rows], (starts + wait_ns)[rows])
    held = picked(calls, rows, ["start_ns", "call", "instance"])
    cut = cut_by_calls(waiting & exposed, held.assign(wait_ns=wait_ns[rows], waits_for=whom[rows]))
    return picked(cut, cut["waits_for"].notna().to_numpy())


def _on_one_clock(own: pd.DataFrame, offset_ns: int) -> pd.DataFrame:
    return own.assign(start_ns=own["start_ns"] - offset_ns, end_ns=own["end_ns"] - offset_ns)


def _followed(pieces: pd.DataFrame, own: Mapping[int, pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What the awaited ranks do of their own, and what they wait for others, who are awaited there instead."""
    stays, moves = [], []
    for rank, part in pieces.groupby("root_rank"):
        waiting = own.get(int(rank), _NO_WAITS) if rank != NONE else _NO_WAITS
        inside = Intervals(waiting["start_ns"].to_numpy(), waiting["end_ns"].to_numpy())
        starts, ends = part["start_ns"].to_numpy(), part["end_ns"].to_numpy()
        row, wait = overlapping(starts, ends, inside)
        following = waiting["waits_for"].to_numpy(dtype=np.int64)[wait]
        is_new = following != part["rank"].to_numpy()[row]
        row, wait, following = row[is_new], wait[is_new], following[is_new]
        moves.append(
            part.iloc[row].assign(
                start_ns=np.maximum(starts[row], inside.starts[wait]),
                end_ns=np.minimum(ends[row], inside.ends[wait]),
                root_rank=following,
            )
        )
        stays.append(_rest(part, row, moves[-1]))
    return pd.concat(stays), pd.concat(moves)


def _rest(part: pd.DataFrame, row: np.ndarray, taken: pd.DataFrame) -> pd.DataFrame:
    """The parts of the stretches between what is taken out of them, which is in order."""
    rows = np.concatenate([np.arange(len(part)), row])
    begins = np.concatenate([part["start_ns"].to_numpy(), taken["end_ns"].to_numpy()])
    order = np.lexsort((begins, rows))
    rows, begins = rows[order], begins[order]
    ends = np.concatenate([part["end_ns"].to_numpy(), taken["start_ns"].to_numpy()])
    # Each stretch begins once more than it is interrupted, and is interrupted, or ends, as often.
    ends = ends[np.lexsort((ends, np.concatenate([np.arange(len(part)), row])))]
    left = part.iloc[rows].assign(start_ns=begins, end_ns=ends)
    return left[left["end_ns"] > left["start_ns"]]
