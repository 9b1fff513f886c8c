"""What mending an episode gains: the job replayed with its ranks' part as their peers', or a bound."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from traceanalyzer.analyses.blame.episode_bounds import cells_of
from traceanalyzer.analyses.blame.episode_rows import apart_ns, is_of_every_host
from traceanalyzer.analyses.blame.lateness import LEAST_PCT, MORE_OPERATIONS
from traceanalyzer.analyses.replay.change import OF_HOSTS, PEERS, Change, Changeable
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of, gains_of
from traceanalyzer.meaning.vocabulary import COPY, DATA, HOST, IDLE_CAUSES, UNKNOWN
from traceanalyzer.model.schema import NONE

_PART_OF_REPLAY: Mapping[str, Changeable] = {
    "compute_ns": "compute",
    "exposed_copy_ns": "copy",
    "transfer_ns": "comm",
    **dict.fromkeys((cause.column for cause in IDLE_CAUSES if cause is not UNKNOWN), "host"),
    DATA.column: "data",
}
"""What the replay makes as fast as on the peers; what is in none of these it cannot change."""


_BEFORE_WORK = (DATA.column, HOST.column, COPY.column)
"""Parts that a step may begin with, before its rank's GPU computes."""

_MOST_SAID = 8
"""Changes that are written out."""


_DEARER = 2.0
"""Times as long as others' operations those that a rank runs more may take to launch."""


def gains(table: pd.DataFrame, found: pd.DataFrame, late: pd.DataFrame, replay: Replay) -> dict[str, Any]:
    """Columns `changes`, `what_if`, `gain_ns`, `gain_error_ns`, `gain_is_bound`, `unprofiled_gain_ns`.

    A bound without replay. `changes` are those whose replay gives the gain, none without. What no complete step has may
    still begin in one: the GPU idles between two steps.
    """
    rows = table.to_dict("records")
    changes = [_changes(row, found, late, rows, replay) for row in rows]
    asked = [place for place, change in enumerate(changes) if change]
    answers = gains_of(replay, [changes[place] for place in asked]) if asked else None
    known = dict(zip(asked, answers or (), strict=False))
    known = {place: answer for place, answer in known.items() if _is_held(rows[place], answer)}
    known = {place: own for place, own in known.items() if not _is_before_steps(rows[place], own, replay)}
    alone = [place for place, answer in known.items() if _is_without_peers(rows[place], answer.gain_ns)]
    for place in [place for place in alone if _is_without_peers(rows[place], _last_ns(place, changes, replay))]:
        changes[place] = (_as_long_as_peers(rows[place]), *(own for own in changes[place] if own.part != "compute"))
        known[place] = gain_of(replay, *changes[place]) or known[place]
    known |= {place: _without_data(rows, known, place) for place in known if rows[place]["part"] == HOST.column}
    each = [_gain(row, known.get(place)) for place, row in enumerate(rows)]
    said = [changes[place] if place in known else () for place in range(len(rows))]
    return {
        "changes": pd.Series(said, dtype=object),
        "what_if": ["; ".join(map(str, own)) if 0 < len(own) <= _MOST_SAID else None for own in said],
        "gain_ns": pd.array([gain for gain, _, _ in each], dtype="Int64"),
        "gain_error_ns": pd.array([error for _, error, _ in each], dtype="Int64"),
        "gain_is_bound": [is_bound for _, _, is_bound in each],
        "unprofiled_gain_ns": pd.array([_unprofiled(known.get(place)) for place in range(len(rows))], dtype="Int64"),
    }


def mended_in(table: pd.DataFrame, needs: pd.DataFrame, replay: Replay) -> list[frozenset[int]]:
    """Of each episode the steps that are changed: its own; one that is in all chosen steps is mended in the others too.

    Where only the chosen ones were, hosts that ran ahead during the steps before would hide what binds a mended job.
    """
    pieces = [] if replay.engine is None else [nodes.piece for nodes in replay.engine.job.nodes.values()]
    recorded = {int(step) for piece in pieces for step in piece.ops["step"].unique() if step != NONE}
    others = recorded - {*needs["step"].dropna().astype(int)}
    each = zip(table["numbers"], table["is_in_every_step"], strict=True)
    return [frozenset(numbers) | others if numbers and is_in_all else frozenset(numbers) for numbers, is_in_all in each]


def _is_held(row: Mapping[str, Any], gain: Gain) -> bool:
    """Whether complete steps have the episode, or at least the idle time before it."""
    return not pd.isna(row["bound_ns"]) or 100 * gain.gain_ns >= LEAST_PCT * gain.before_ns


def _is_before_steps(row: Mapping[str, Any], gain: Gain, replay: Replay) -> bool:
    """Whether it is what comes before the first step that is replayed: that begins when its last rank begins it.

    The others' first step holds their wait for it, so that their mean step is longer by the bound. Of hosts that are
    late by nothing that has a name the profiler may have begun later on one than on the other.
    """
    steps = None if replay.engine is None else replay.engine.windows.table["step"].dropna()
    if steps is None or steps.empty or row["numbers"] != (int(steps.min()),) or row["part"] not in _BEFORE_WORK:
        return False
    return not (pd.isna(row["bound_ns"]) or pd.isna(row["name"])) and 10 * gain.gain_ns < row["bound_ns"]


def _without_data(rows: Sequence[Mapping[str, Any]], known: Mapping[int, Gain], place: int) -> Gain:
    """A host's gain less that of the same ranks' data in the same steps, which is an episode by itself."""
    gain, own = known[place], rows[place]
    for other, row in enumerate(rows):
        is_same = {*row["ranks"]} <= {*own["ranks"]} and {*row["numbers"]} <= {*own["numbers"]}
        if row["part"] == DATA.column and is_same and other in known:
            data = known[other]
            less = gain.unprofiled_ns and (
                gain.unprofiled_ns[0],
                gain.unprofiled_ns[1] + (data.unprofiled_gain_ns or 0),
            )
            gain = replace(gain, after_ns=min(gain.after_ns + data.gain_ns, gain.before_ns), unprofiled_ns=less)
    return gain


def _is_without_peers(row: Mapping[str, Any], gain_ns: int) -> bool:
    """Whether next to nothing became of the change: peers that run kernels of other names have no times to give."""
    return bool(row["part"] == "compute_ns" and not pd.isna(row["bound_ns"]) and 10 * gain_ns < row["bound_ns"])


def _last_ns(place: int, changes: Sequence[tuple[Change, ...]], replay: Replay) -> int:
    """What an episode's changes gain once all others are mended, which may hide it."""
    others = tuple(change for each, own in enumerate(changes) if each != place for change in own)
    both = gains_of(replay, [others, (*others, *changes[place])]) if others else None
    return both[1].gain_ns - both[0].gain_ns if both else 0


def _as_long_as_peers(row: Mapping[str, Any]) -> Change:
    """All compute of the ranks in those steps, scaled to what their peers compute altogether."""
    peers_ns = 0 if pd.isna(row["peers_ns"]) else row["peers_ns"]
    factor = max(peers_ns, row["own_ns"] - row["excess_ns"], 0) / max(row["own_ns"], 1)
    return Change("compute", factor, frozenset(row["ranks"]), row["mended_in"] or None)


def _unprofiled(replayed: Gain | None) -> int | None:
    return None if replayed is None or replayed.is_bound else replayed.unprofiled_gain_ns


def _gain(row: Mapping[str, Any], replayed: Gain | None) -> tuple[Any, Any, bool]:
    if replayed is None:
        return row["bound_ns"], pd.NA, True
    if replayed.is_lower_bound:  # waits whose partners are not known stay in a replay
        return max(replayed.gain_ns, row["bound_ns"]), replayed.error_ns, True
    return replayed.gain_ns, replayed.error_ns, replayed.is_bound


def _changes(
    row: Mapping[str, Any],
    found: pd.DataFrame,
    late: pd.DataFrame,
    rows: Sequence[Mapping[str, Any]],
    replay: Replay,
) -> tuple[Change, ...]:
    """What was longer as on the peers: the part itself, and what was longer beside it in the same steps."""
    own = cells_of(row, found)
    names = {row["part"], *(part for parts in own["beside"] for part in parts)}
    if _only_launches_more(row, late, replay) and not any(_is_of_host(other, row) for other in rows):
        names.add(HOST.column)
    if row["part"] not in _PART_OF_REPLAY:
        return ()
    parts = sorted({_PART_OF_REPLAY[name] for name in names if name in _PART_OF_REPLAY})
    parts = [part for part in parts if part != "data" or "host" not in parts]  # which is a part of it
    if replay.engine is not None and not replay.engine.has_hosts:
        parts = [part for part in parts if part not in OF_HOSTS]
    return tuple(
        Change(part, _left(row, part, replay), ranks, steps)
        for part in parts
        for ranks, steps in _where(row, own, part)
    )


def _only_launches_more(row: Mapping[str, Any], late: pd.DataFrame, replay: Replay) -> bool:
    """Whether it computes longer by further operations, which its hosts launch: gone, they take neither.

    Not where one of its hosts needs longer than launching so much more takes, by operations that take twice as long to
    launch as the others': that is left when they are gone.
    """
    if row["part"] != "compute_ns" or replay.engine is None:
        return False
    steps = list(row["numbers"])
    counts = {
        rank: int(nodes.piece.ops["step"].isin(steps).sum()) if steps else len(nodes.piece.ops)
        for rank, nodes in replay.engine.job.nodes.items()
    }
    own, others = (
        [count for rank, count in counts.items() if (rank in row["ranks"]) is is_own] for is_own in (True, False)
    )
    if not own or not others or min(own) < MORE_OPERATIONS * max(others):
        return False
    in_steps = late[late["step"].isin(steps)] if steps else late
    needed = in_steps.groupby("rank")["needed_host_ns"].median().astype("float64").dropna()
    is_own = needed.index.isin(row["ranks"])
    more = max(own) / max(others) - 1
    return bool((needed[is_own] < apart_ns(needed[~is_own]) * (1 + _DEARER * more)).all())


def _is_of_host(other: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether the lateness of the same ranks' hosts in the same steps is an episode by itself, and not every host's.

    So is that of their data: hosts that are as their peers' load as fast.
    """
    is_same = bool({*other["ranks"]} & {*row["ranks"]}) and {*other["numbers"]} & {*row["numbers"]} == {*row["numbers"]}
    return other["part"] in (HOST.column, DATA.column) and is_same and not is_of_every_host(other)


def _left(row: Mapping[str, Any], part: Changeable, replay: Replay) -> float | str:
    """What is left of a part of the ranks' time, where it is told, else what their peers take.

    A stage that no other rank has runs what others do not: its kernels become as much faster as those that they share.
    Of hosts whose ranks' kernels no other rank runs it is what they need without their excess.
    """
    if part == "data":
        return _data_left(row)
    if part == "compute" and row["is_slow_stage"]:
        return round(float(row["peers_ns"] / row["own_ns"]), 4)
    if part == "host" and _is_without_like_hosts(row, replay):
        return round(max(row["own_host_ns"] - row["excess_ns"], 0) / row["own_host_ns"], 4)
    return PEERS


def _is_without_like_hosts(row: Mapping[str, Any], replay: Replay) -> bool:
    """Whether no other rank runs what these launch: the replay has no host to hold theirs against."""
    if replay.engine is None or pd.isna(row["own_host_ns"]) or not row["own_host_ns"]:
        return False
    peers, ranks = replay.engine.peers, frozenset(row["ranks"])
    return not any(len(peers.of(rank, ranks)) for rank in ranks)


def _data_left(row: Mapping[str, Any]) -> float:
    """What is left of the ranks' time in the data loader when their GPUs wait for it as long as their peers'.

    No less than what loading takes these: of as long a loading longer queues hide more.
    """
    own, peers = row["own_ns"], 0 if pd.isna(row["peers_ns"]) else row["peers_ns"]
    if not own or row["part"] != DATA.column:
        return 0.0
    return min(1.0, round(max(float(peers / own), row["loading_left"]), 2))


def _where(
    row: Mapping[str, Any], own: pd.DataFrame, part: Changeable
) -> list[tuple[frozenset[int], frozenset[int] | None]]:
    """Ranks, and the steps in which they are late; of ranks in turn those that are late in the same steps.

    Of slow links each group that they move data over: a transfer is all its ranks'.
    """
    if row["groups"] and part == "comm":
        return [(ranks, row["mended_in"] or None) for ranks in row["groups"]]
    if not row["is_in_turn"]:
        return [(frozenset(row["ranks"]), row["mended_in"] or None)]
    together: dict[frozenset[int], set[int]] = {}
    for rank, steps in own.groupby("rank")["step"].unique().items():
        together.setdefault(frozenset(map(int, steps)), set()).add(int(rank))
    return [(frozenset(ranks), steps) for steps, ranks in together.items()]
