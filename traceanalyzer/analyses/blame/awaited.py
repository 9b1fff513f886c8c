"""For whom each moment of a wait is: the ranks that others wait for, followed through their own waits."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import stack
from traceanalyzer.analyses.communication.exposed_comm import STRETCH, exposed_of
from traceanalyzer.analyses.communication.waits import cut_by_calls
from traceanalyzer.analyses.time.intervals import Intervals, overlapping
from traceanalyzer.analyses.time.side_by_side import side_by_side
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, only, picked, under_each_other, with_columns

_COLUMNS = ("rank", "start_ns", "end_ns", "instance", "waits_for", "root_rank")


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
    own = _later(side_by_side(_idle_in_calls, stack(exposed, STRETCH), calls), offsets, -1)
    held = _later(waits, offsets, -1)
    pieces = held[held["waits_for"].notna()].assign(root_rank=lambda rows: rows["waits_for"].astype("int64"))
    done = [pieces.iloc[:0]]
    for _ in range(len(exposed)):
        if pieces.empty:
            break
        stays, pieces = _followed(pieces, own)
        done.append(stays)
    return _later(only(under_each_other([*done, pieces]), list(_COLUMNS)), offsets)


def _later(table: pd.DataFrame, offsets: Mapping[int, int], times: int = 1) -> pd.DataFrame:
    """The stretches as many times later as their rank's clock is ahead."""
    by = times * table["rank"].map(offsets).fillna(0).to_numpy(dtype=np.int64)
    return with_columns(table, **{name: table[name].to_numpy(dtype=np.int64) + by for name in ("start_ns", "end_ns")})


def _idle_in_calls(stretches: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Stretches in which a rank computes nothing and waits, or may: `waits_for` is `NONE` where that is not known."""
    exposed = exposed_of(stretches)
    starts, ends = array_of(calls, "start_ns"), array_of(calls, "end_ns")
    is_unknown, has_none = (calls[name].isna().to_numpy() for name in ("wait_ns", "waits_for"))
    wait_ns, waits_for = (calls[name].to_numpy(np.int64, na_value=NONE) for name in ("wait_ns", "waits_for"))
    wait_ns = np.where(is_unknown, ends - starts, wait_ns)
    whom = pd.arrays.IntegerArray(np.where(is_unknown, NONE, waits_for), has_none & ~is_unknown)
    rows = np.flatnonzero(wait_ns > 0)
    waiting = Intervals.of(starts[rows], (starts + wait_ns)[rows])
    held = picked(calls, rows, ["rank", "start_ns", "call", "instance"])
    cut = cut_by_calls(waiting & exposed, held.assign(wait_ns=wait_ns[rows], waits_for=whom[rows]))
    return picked(cut, ~column_of(cut, "waits_for").isna())


def _followed(pieces: pd.DataFrame, own: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What the awaited ranks do of their own, and what they wait for others, who are awaited there instead."""
    at_root = pieces.assign(of_rank=pieces["rank"], rank=pieces["root_rank"])
    at_root = at_root.sort_values("rank", kind="stable", ignore_index=True)
    cut = side_by_side(_cut_by_waits, at_root, own)
    cut = only(cut.assign(rank=cut["of_rank"]), [*pieces.columns, "is_moved"])
    is_moved = cut["is_moved"].to_numpy(dtype=bool)
    stays, moves = (picked(cut, mask, list(pieces.columns)) for mask in (~is_moved, is_moved))
    return stays, moves


def _cut_by_waits(pieces: pd.DataFrame, waiting: pd.DataFrame) -> pd.DataFrame:
    """The pieces, at the ranks that are awaited, cut by these ranks' waits for others: `is_moved` there."""
    inside = Intervals(array_of(waiting, "start_ns"), array_of(waiting, "end_ns"))
    starts, ends = array_of(pieces, "start_ns"), array_of(pieces, "end_ns")
    row, wait = overlapping(starts, ends, inside)
    following = waiting["waits_for"].to_numpy(dtype=np.int64)[wait]
    is_new = following != array_of(pieces, "of_rank")[row]
    row, wait, following = row[is_new], wait[is_new], following[is_new]
    moves = with_columns(
        picked(pieces, row),
        start_ns=np.maximum(starts[row], inside.starts[wait]),
        end_ns=np.minimum(ends[row], inside.ends[wait]),
        root_rank=following,
    )
    stays = _rest(pieces, row, moves)
    return under_each_other([with_columns(stays, is_moved=False), with_columns(moves, is_moved=True)])


def _rest(part: pd.DataFrame, row: np.ndarray, taken: pd.DataFrame) -> pd.DataFrame:
    """The parts of the stretches between what is taken out of them, which is in order."""
    rows = np.concatenate([np.arange(len(part)), row])
    begins = np.concatenate([array_of(part, "start_ns"), array_of(taken, "end_ns")])
    order = np.lexsort((begins, rows))
    rows, begins = rows[order], begins[order]
    ends = np.concatenate([array_of(part, "end_ns"), array_of(taken, "start_ns")])
    # Each stretch begins once more than it is interrupted, and is interrupted, or ends, as often.
    ends = ends[np.lexsort((ends, np.concatenate([np.arange(len(part)), row])))]
    is_left = ends > begins
    return with_columns(picked(part, rows[is_left]), start_ns=begins[is_left], end_ns=ends[is_left])
