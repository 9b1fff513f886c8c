"""Episodes that hide each other: mending one alone wins little, for the ranks of another one are as late."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.episode_rows import is_of_every_host
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gains_of

LEAST_PCT = 1.0
"""Of a step: an episode is hidden when mending it gains so much more once the others are mended."""

_MOST = 6
"""Episodes that are held against each other, the costliest: their pairs are replayed."""

COLUMNS = ("together", "place_in_set", "then_gain_ns", "joint_gain_ns", "joint_unprofiled_gain_ns")

Set = frozenset[int]


def together(table: pd.DataFrame, replay: Replay) -> pd.DataFrame:
    """The episodes with `COLUMNS`, absent for those that hide nothing and are hidden by none.

    `table` has a row for each episode, with `changes` (those whose replay mends it) and `total_ns`. An
    episode is hidden when it gains more of what all are mended to than alone. Two of them hide each other when the last
    of the two gains more than both did by themselves, the rest mended; a set is whom this joins. In a set those come
    first that gain most once those before them are mended. Where waits whose partners are not known stay in a replay,
    who hides whom is not told.
    """
    rows = table.to_dict("records")
    sets = _Replays(rows, replay).sets() if len(rows) > 1 and replay.engine is not None else []
    columns: dict[str, list[Any]] = {name: [pd.NA] * len(rows) for name in COLUMNS}
    for number, (joint, order) in enumerate(sets):
        for place, (row, then_ns) in enumerate(order):
            values = (number, place, then_ns, joint.gain_ns, None if joint.is_bound else joint.unprofiled_gain_ns)
            for name, value in zip(COLUMNS, values, strict=True):
                columns[name][row] = pd.NA if value is None else value
    return table.assign(**{name: pd.array(values, dtype="Int64") for name, values in columns.items()})


def _expected_ns(gain: Gain) -> int:
    """Without what recording takes the hosts, where known: hosts that only a profiler makes late hide nobody."""
    return gain.gain_ns if gain.is_bound or gain.unprofiled_gain_ns is None else gain.unprofiled_gain_ns


class _Replays:
    """Gains of sets of episodes, each replayed once."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], replay: Replay) -> None:
        known = [row for row, own in enumerate(rows) if own["changes"] and not is_of_every_host(own)]
        self.rows = sorted(known, key=lambda row: -rows[row]["total_ns"])[:_MOST]
        self.changes = {row: rows[row]["changes"] for row in self.rows}
        self.replay = replay
        self._known: dict[Set, Gain] = {}

    def sets(self) -> list[tuple[Gain, list[tuple[int, int]]]]:
        """Of each set what mending it gains, and its rows in order with what each then gains."""
        every = frozenset(self.rows)
        if len(every) < 2:
            return []
        self._replay([every, *({row} for row in every), *(every - {row} for row in every)])
        if self._known[every].is_lower_bound:
            return []
        least_ns = LEAST_PCT / 100 * self._known[every].before_ns
        last = {row: self._ns(every) - self._ns(every - {row}) for row in every}
        held = frozenset(row for row in every if last[row] >= least_ns)
        if not any(last[row] - self._ns({row}) >= least_ns for row in held):
            return []
        return [self._ordered(own) for own in self._joined(held, least_ns)]

    def _ns(self, rows: Set | set[int]) -> int:
        return _expected_ns(self._known[frozenset(rows)]) if rows else 0

    def _replay(self, wanted: Sequence[Set | set[int]]) -> None:
        missing = list(dict.fromkeys(frozenset(own) for own in wanted if own and frozenset(own) not in self._known))
        asked = [tuple(change for row in self.rows if row in own for change in self.changes[row]) for own in missing]
        self._known.update(zip(missing, gains_of(self.replay, asked) or (), strict=True) if asked else ())

    def _joined(self, held: Set, least_ns: float) -> list[list[int]]:
        """Rows that hide each other, directly or by others."""
        ordered = [row for row in self.rows if row in held]
        pairs = [(one, other) for place, one in enumerate(ordered) for other in ordered[place + 1 :]]
        self._replay([held, *(held - {row} for row in held), *(held - {*pair} for pair in pairs)])
        home = {row: row for row in ordered}
        for one, other in pairs:
            both = self._ns(held) - self._ns(held - {one, other})
            each = (self._ns(held) - self._ns(held - {row}) for row in (one, other))
            if sum(each) - both >= least_ns:
                old, new = home[other], home[one]
                home = {row: new if root == old else root for row, root in home.items()}
        groups = [[row for row in ordered if home[row] == root] for root in dict.fromkeys(home.values())]
        return [group for group in groups if len(group) > 1]

    def _ordered(self, rows: Sequence[int]) -> tuple[Gain, list[tuple[int, int]]]:
        order: list[tuple[int, int]] = []
        done: Set = frozenset()
        while len(order) < len(rows):
            left = [row for row in rows if row not in done]
            self._replay([done | {row} for row in left])
            gains = np.array([self._ns(done | {row}) for row in left])
            best = int(gains.argmax())
            order.append((left[best], int(gains[best]) - self._ns(done)))
            done |= {left[best]}
        return self._known[done], order
