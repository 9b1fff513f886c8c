"""Waits between streams that times show in some steps or on some ranks are there in all: the program is the same."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import table_of, under_each_other

LEAST_SEEN = 2
"""So often a kernel that begins when a certain other one ends does so by no chance."""


def with_waits_alike(pieces: Mapping[int, Piece]) -> dict[int, Piece]:
    """The pieces, each with the waits that times show between the same two operations elsewhere.

    A wait that no event tells is seen only where nothing else holds the operation for longer: where a collective waits
    for a late rank, that hides that it also waits for its own rank's gradient. Two operations are the same two in
    another step or on another rank when each is of the same stream, name and place among those of its name in the
    step. Where times contradict a wait anywhere, it is none.
    """
    if not any(piece.waits["is_touching"].any() for piece in pieces.values()):
        return dict(pieces)
    ops = _Operations(pieces)
    base = dict(zip(pieces, np.cumsum([0, *(len(piece) for piece in pieces.values())]).tolist(), strict=False))
    seen = [piece.waits.loc[piece.waits["is_touching"], ["source", "target"]] + base[rank]
            for rank, piece in pieces.items()]  # fmt: skip
    source, target = _everywhere(ops, *under_each_other(seen).to_numpy(dtype=np.int64).T)
    bounds = [*base.values(), len(ops.key)]
    return {
        rank: _with(piece, source[mine] - begin, target[mine] - begin)
        for (rank, piece), begin, end in zip(pieces.items(), bounds[:-1], bounds[1:], strict=True)
        for mine in [(target >= begin) & (target < end)]
    }


class _Operations:
    """All ranks' operations: `kernel` (stream and name), `key` (and its place in the step), `place` (rank and step)."""

    def __init__(self, pieces: Mapping[int, Piece]) -> None:
        names: dict[str, int] = {}
        parts = [(rank, piece.ops, piece.ops["name"].cat) for rank, piece in pieces.items()]
        columns = {
            "rank": np.concatenate([np.full(len(ops), rank) for rank, ops, _ in parts]),
            "name": np.concatenate([
                np.array([*(names.setdefault(name, len(names)) for name in own.categories), NONE])[own.codes.to_numpy()]
                for _, _, own in parts
            ]),
            **{name: np.concatenate([ops[name].to_numpy() for _, ops, _ in parts]) for name in ("stream", "step")},
        }  # fmt: skip
        same = Groups.of(columns, ["rank", "step", "stream", "name"])
        columns["number"] = pd.Series(same.of_row).groupby(same.of_row).cumcount().to_numpy()
        self.kernel = Groups.of(columns, ["stream", "name"]).of_row
        self.key = Groups.of(columns, ["stream", "name", "number"]).of_row
        self.place = Groups.of(columns, ["rank", "step"]).of_row
        self.starts = np.concatenate([ops["start_ns"].to_numpy() for _, ops, _ in parts])
        self.ends = self.starts + np.concatenate([ops["duration_ns"].to_numpy() for _, ops, _ in parts])


def _everywhere(ops: _Operations, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both operations wherever they are, of the waits that are seen often enough and nowhere contradicted."""
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
    is_contradicted[pairs["wait"].to_numpy()[ops.ends[first] > ops.starts[second]]] = True
    held = ~is_contradicted[pairs["wait"].to_numpy()]
    return first[held], second[held]


def _rows_of(ops: _Operations, keys: np.ndarray) -> pd.DataFrame:
    """All operations of some keys: `row`, `place`, and `wait` (the position of the key)."""
    wanted = table_of({"key": np.asarray(keys), "wait": np.arange(len(keys))})
    is_wanted = np.zeros(int(ops.key.max(initial=0)) + 1, dtype=bool)
    is_wanted[wanted["key"].to_numpy()] = True
    row = np.flatnonzero(is_wanted[ops.key])
    return table_of({"key": ops.key[row], "row": row, "place": ops.place[row]}).merge(wanted, on="key")


def _with(piece: Piece, source: np.ndarray, target: np.ndarray) -> Piece:
    """With the waits that it does not have yet."""
    waits = piece.waits
    known = waits["source"].to_numpy() * len(piece) + waits["target"].to_numpy()
    is_new = ~np.isin(source * len(piece) + target, known)
    if not is_new.any():
        return piece
    more = table_of({"source": source[is_new], "target": target[is_new], "is_recorded": False, "is_touching": True})
    return replace(piece, waits=under_each_other([waits, more]))
