"""Waits between streams that times show in some steps or on some ranks are there in all: the program is the same."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups, number_in_group
from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, table_of, under_each_other

_STREAM_BITS = 24

LEAST_SEEN = 2
"""So often a kernel that begins when a certain other one ends does so by no chance."""


def with_waits_alike(pieces: Mapping[int, Piece]) -> dict[int, Piece]:
    """The pieces, each with the waits that times show between the same two operations elsewhere.

    A wait that no event tells is seen only where nothing else holds the operation for longer: where a collective waits
    for a late rank, that hides that it also waits for its own rank's gradient. Two operations are the same two in
    another step or on another rank when each is of the same stream, name and place among those of its name in the
    step. Where times contradict a wait anywhere, it is none.
    """
    pieces = without_denied(pieces)
    if not any(piece.waits["is_touching"].any() for piece in pieces.values()):
        return pieces
    ops = _Operations(pieces)
    source, target = _everywhere(ops)
    bounds = ops.bounds
    return {
        rank: _with(piece, ops.row[source[mine]], ops.row[target[mine]])
        for (rank, piece), begin, end in zip(pieces.items(), bounds[:-1], bounds[1:], strict=True)
        for mine in [(target >= begin) & (target < end)]
    }


def without_denied(pieces: Mapping[int, Piece]) -> dict[int, Piece]:
    """The pieces without the waits that calls tell where a rank never waits so: the call was for another event.

    Where such a wait binds nothing, times cannot contradict it: the next batch's copy, launched right before the wait
    for this one's, has long ended on ranks that wait for a late one; so has a collective to which they come last. A
    rank of which times contradict it in each of several steps shows that the program does not wait for it.
    """
    if all(piece.denied.empty for piece in pieces.values()):
        return dict(pieces)
    told = {
        rank: piece.waits[~piece.waits["is_recorded"] & ~piece.waits["is_touching"]] for rank, piece in pieces.items()
    }
    known: dict[object, int] = {}
    placed = {rank: _placed(piece, known) for rank, piece in pieces.items()}
    held = {rank: _pairs(placed[rank], told[rank]) for rank in pieces}
    never: set[_Pair] = set()
    for rank, piece in pieces.items():
        times = Counter(_pairs(placed[rank], piece.denied))
        never |= {pair for pair, count in times.items() if count >= LEAST_SEEN} - {*held[rank]}
    never.discard(_OTHER)
    return {
        rank: replace(piece, waits=piece.waits.drop(index=told[rank].index[[pair in never for pair in held[rank]]]))
        for rank, piece in pieces.items()
    }


_Pair = tuple[int, ...] | None
"""Of both operations of a wait: number of stream and name, and place among those of that name in the step."""

_OTHER: _Pair = None
"""Of operations of different steps."""


def _placed(piece: Piece, known: dict[object, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each operation its step, the number of its stream and name, and its place among those in the step."""
    step, kinds = array_of(piece.ops, "step"), _kinds(piece, known)
    return step, kinds, number_in_group(Groups.of({"step": step, "kind": kinds}, ["step", "kind"]).of_row)


def _pairs(placed: tuple[np.ndarray, np.ndarray, np.ndarray], waits: pd.DataFrame) -> list[_Pair]:
    step, kinds, place = placed
    ends = [array_of(waits, name).astype(np.int64) for name in ("source", "target")]
    is_in_step = (step[ends[0]] == step[ends[1]]).tolist()
    pairs = zip(*(numbers[rows].tolist() for rows in ends for numbers in (kinds, place)), strict=True)
    return [pair if is_one else _OTHER for pair, is_one in zip(pairs, is_in_step, strict=True)]


class _Operations:
    """All ranks' operations of kernels that touch another stream's somewhere, one rank after the other.

    Attributes:
        row: in the rank's piece.
        kernel: number of its stream and name; `key` is that of its place among those in the step, too.
        place: number of its rank and step.
        seen: rows, here, of the operations that touch: sources and targets.
        bounds: where each rank's begin.
    """

    def __init__(self, pieces: Mapping[int, Piece]) -> None:
        names: dict[object, int] = {}
        parts = [_touched(piece, names) for piece in pieces.values()]
        kinds = np.unique(np.concatenate([kinds[rows.ravel()] for kinds, rows in parts]))
        held = [np.flatnonzero(np.isin(own, kinds)) for own, _ in parts]
        self.row = np.concatenate(held)
        self.bounds = np.cumsum([0, *map(len, held)]).tolist()
        self.kernel = np.concatenate([own[rows] for (own, _), rows in zip(parts, held, strict=True)])
        self.seen = np.concatenate(
            [np.searchsorted(rows, pairs) + begin
             for (_, pairs), rows, begin in zip(parts, held, self.bounds[:-1], strict=True)]
        )  # fmt: skip
        tables = [(piece.ops, rows) for piece, rows in zip(pieces.values(), held, strict=True)]
        step, self.starts, length = (
            np.concatenate([array_of(ops, name)[rows] for ops, rows in tables])
            for name in ("step", "start_ns", "duration_ns")
        )
        self.ends = self.starts + length
        rank = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
        self.place = Groups.of({"rank": rank, "step": step}, ["rank", "step"]).of_row
        same = Groups.of({"place": self.place, "kernel": self.kernel}, ["place", "kernel"]).of_row
        self.key = Groups.of({"kernel": self.kernel, "number": number_in_group(same)}, ["kernel", "number"]).of_row


def _touched(piece: Piece, known: dict[object, int]) -> tuple[np.ndarray, np.ndarray]:
    """Number of each operation's stream and name over all ranks, and the rows of each two that touch."""
    touching = array_of(piece.waits, "is_touching").astype(bool)
    rows = np.stack([array_of(piece.waits, end)[touching] for end in ("source", "target")], axis=1)
    return _kinds(piece, known), rows


def _kinds(piece: Piece, known: dict[object, int]) -> np.ndarray:
    """Number of each operation's stream and name over all ranks."""
    names = column_of(piece.ops, "name")
    code = np.array([*(known.setdefault(name, len(known)) for name in names.categories.tolist()), NONE], dtype=np.int64)
    of_stream, streams = pd.factorize(array_of(piece.ops, "stream"))
    stream = np.array([known.setdefault(number, len(known)) for number in streams.tolist()], dtype=np.int64)
    kinds: np.ndarray = (code[names.codes] << _STREAM_BITS) + stream[of_stream]
    return kinds


def _everywhere(ops: _Operations) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both operations wherever they are, of the waits that are seen often enough and nowhere contradicted."""
    source, target = ops.seen.T
    in_step = ops.place[source] == ops.place[target]
    kinds = Groups.of(
        {"source": ops.kernel[source[in_step]], "target": ops.kernel[target[in_step]]}, ["source", "target"]
    )
    often = kinds.counts()[kinds.of_row] >= LEAST_SEEN
    waits = Groups.of({"source": ops.key[source[in_step]][often], "target": ops.key[target[in_step]][often]},
                      ["source", "target"])  # fmt: skip
    sources, targets = _rows_of(ops, waits.keys["source"]), _rows_of(ops, waits.keys["target"])
    pairs = sources.merge(targets, on=["wait", "place"])
    first, second = pairs["row_x"].to_numpy(dtype=np.int64), pairs["row_y"].to_numpy(dtype=np.int64)
    is_contradicted = np.zeros(len(waits.first), dtype=bool)
    is_contradicted[array_of(pairs, "wait")[ops.ends[first] > ops.starts[second]]] = True
    held = ~is_contradicted[array_of(pairs, "wait")]
    return first[held], second[held]


def _rows_of(ops: _Operations, keys: np.ndarray) -> pd.DataFrame:
    """All operations of some keys: `row`, `place`, and `wait` (the position of the key)."""
    wanted = table_of({"key": np.asarray(keys), "wait": np.arange(len(keys))})
    is_wanted = np.zeros(int(ops.key.max(initial=0)) + 1, dtype=bool)
    is_wanted[array_of(wanted, "key")] = True
    row = np.flatnonzero(is_wanted[ops.key])
    return table_of({"key": ops.key[row], "row": row, "place": ops.place[row]}).merge(wanted, on="key")


def _with(piece: Piece, source: np.ndarray, target: np.ndarray) -> Piece:
    """With the waits that it does not have yet."""
    waits = piece.waits
    known = array_of(waits, "source") * len(piece) + array_of(waits, "target")
    is_new = ~np.isin(source * len(piece) + target, known)
    if not is_new.any():
        return piece
    more = table_of({"source": source[is_new], "target": target[is_new], "is_recorded": False, "is_touching": True})
    return replace(piece, waits=under_each_other([waits, more]))
