"""Which late ranks and steps are one episode: those of one cause that are late together, or in turn, or slow alike."""

from collections.abc import Collection, Iterator

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.transfers import TRANSFER, collective_of

_ALIKE = 0.6
"""Two ranks are late together when they share this much of the steps in which either is."""

_LEAST_TURNS = 3

_FAR_SLOWER = 1.6
"""Times what another GPU takes more for the same work: 1.5 times as long is another slowness than 1.25 times."""

_FAR_MORE = 2.0
"""Times the excess of the longest complete step: so much more in an open one is another thing."""

_APART = 0.1
"""Times as long; GPUs of one kind differ by some per cent."""


def grouped(found: pd.DataFrame, complete: Collection[int]) -> Iterator[pd.DataFrame]:
    """Cells of one cause and name; of those the ranks that are late in the same steps, or in turn.

    Slower GPUs are apart where some are far slower than the others; so are steps that are not `complete`, whose figures
    are in no mean step, where they take longer by far more than any complete one, and than all of them together.
    """
    for _, rows in found.groupby(["part", found["name"].fillna("")], sort=False):
        for own in _together(rows):
            for held in _as_complete(own, complete):
                yield from _as_slow(held)


def _as_complete(rows: pd.DataFrame, complete: Collection[int]) -> Iterator[pd.DataFrame]:
    is_of_mean = rows["step"].isin(complete)
    parts = [part for part in (rows[~is_of_mean], rows[is_of_mean]) if len(part)]
    if len(parts) == 2:
        of_open, of_complete = (part["excess_ns"] for part in parts)
        if of_open.sum() > of_complete.sum() and of_open.max() > _FAR_MORE * of_complete.max():
            yield from parts
            return
    yield rows


def _as_slow(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Late ranks whose GPUs take longer for the same work: parted at the largest gap, where there is a clear one."""
    sums = rows.groupby("rank")[["same_ns", "peers_same_ns"]].sum()
    more = (sums["same_ns"] / sums["peers_same_ns"] - 1).sort_values()
    if rows["is_in_turn"].any() or rows["same_ns"].isna().any() or not (more > 0).all() or len(more) < 2:
        yield rows
        return
    high, low = more.iloc[1:].to_numpy(), more.iloc[:-1].to_numpy()
    gap = np.where((high >= _FAR_SLOWER * low) & (high - low >= _APART), high / low, 0)
    slower = rows["rank"].isin(more.index[gap.argmax() + 1 :] if gap.max() else more.index)
    for is_own in (slower, ~slower):
        if is_own.any():
            yield rows[is_own]


def of_all_groups(found: pd.DataFrame) -> pd.DataFrame:
    """The cells, a collective named without its group where groups move data for longer in turn."""
    is_transfer = (found["part"] == TRANSFER) & found["name"].notna()
    names = found.loc[is_transfer, "name"].map(collective_of)
    for name, rows in found[is_transfer].groupby(names):
        if len({*rows["name"]}) > 1 and next(_together(rows))["is_in_turn"].all():
            found = found.assign(name=found["name"].where(~found.index.isin(rows.index), name))
    return found


def _together(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Ranks whose steps are mostly the same; the rest in turn where there are several, each in other steps."""
    steps = {int(rank): frozenset(own) for rank, own in rows.groupby("rank")["step"]}
    sets: list[list[int]] = []
    for rank in sorted(steps, key=lambda each: (-len(steps[each]), each)):
        home = next((ranks for ranks in sets if _overlap(steps[ranks[0]], steps[rank]) >= _ALIKE), None)
        if home is None:
            sets.append([rank])
        else:
            home.append(rank)
    total = rows["step"].nunique()
    if len(sets) > 1 and total >= _LEAST_TURNS and all(2 * len(steps[ranks[0]]) <= total for ranks in sets):
        yield rows.assign(is_in_turn=True)
        return
    for ranks in sets:
        yield rows[rows["rank"].isin(ranks)].assign(is_in_turn=False)


def _overlap(one: frozenset[int], other: frozenset[int]) -> float:
    return len(one & other) / len(one | other)
