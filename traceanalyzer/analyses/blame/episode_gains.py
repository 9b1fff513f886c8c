"""What mending an episode gains: the job replayed with its ranks' part as their peers'."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from traceanalyzer.analyses.replay.change import PEERS, Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of, gains_of
from traceanalyzer.vocabulary import IDLE_CAUSES, UNKNOWN

_PART_OF_REPLAY: Mapping[str, str] = {
    "compute_ns": "compute",
    "exposed_copy_ns": "copy",
    **dict.fromkeys((cause.column for cause in IDLE_CAUSES if cause is not UNKNOWN), "host"),
}
"""What the replay makes as fast as on the peers; what is in none of these it cannot change."""


def cells_of(row: Mapping[str, Any], found: pd.DataFrame) -> pd.DataFrame:
    """The cells of an episode."""
    name = found["name"].isna() if pd.isna(row["name"]) else found["name"] == row["name"]
    is_own = (found["part"] == row["part"]) & name & found["rank"].isin(row["ranks"])
    return found[is_own & found["step"].isin(row["numbers"] or (-1,))]


def gains(table: pd.DataFrame, found: pd.DataFrame, replay: Replay) -> dict[str, Any]:
    """Columns `gain_ns`, `gain_error_ns`, `gain_is_bound`; the bound where nothing can be replayed."""
    rows = table.to_dict("records")
    changes = [_changes(row, found) if not pd.isna(row["bound_ns"]) else () for row in rows]
    asked = [place for place, change in enumerate(changes) if change]
    answers = gains_of(replay, [changes[place] for place in asked]) if asked else None
    known = dict(zip(asked, answers or (), strict=False))
    for place in [place for place, answer in known.items() if _is_without_peers(rows[place], answer)]:
        known[place] = gain_of(replay, _as_long_as_peers(rows[place])) or known[place]
    each = [_gain(row, known.get(place)) for place, row in enumerate(rows)]
    return {
        "gain_ns": pd.array([gain for gain, _, _ in each], dtype="Int64"),
        "gain_error_ns": pd.array([error for _, error, _ in each], dtype="Int64"),
        "gain_is_bound": [is_bound for _, _, is_bound in each],
    }


def _is_without_peers(row: Mapping[str, Any], answer: Gain) -> bool:
    """Whether next to nothing became of the change: peers that run kernels of other names have no times to give."""
    return bool(row["part"] == "compute_ns" and 10 * answer.gain_ns < row["bound_ns"])


def _as_long_as_peers(row: Mapping[str, Any]) -> Change:
    """All compute of the ranks in those steps, scaled to what their peers compute altogether."""
    factor = max(0.0, 1 - row["excess_ns"] / max(row["own_ns"], 1))
    return Change("compute", factor, frozenset(row["ranks"]), frozenset(row["numbers"]) or None)


def _gain(row: Mapping[str, Any], replayed: Any) -> tuple[Any, Any, bool]:
    if replayed is None:
        return row["bound_ns"], pd.NA, True
    return replayed.gain_ns, replayed.error_ns, replayed.is_bound


def _changes(row: Mapping[str, Any], found: pd.DataFrame) -> tuple[Change, ...]:
    part = _PART_OF_REPLAY.get(row["part"])
    if part is None:
        return ()
    own = cells_of(row, found)
    if not row["numbers"]:
        return (Change(part, PEERS, frozenset(row["ranks"])),)
    if not row["is_in_turn"]:
        return (Change(part, PEERS, frozenset(row["ranks"]), frozenset(row["numbers"])),)
    return tuple(
        Change(part, PEERS, frozenset({int(rank)}), frozenset(map(int, steps)))
        for rank, steps in own.groupby("rank")["step"].unique().items()
    )
