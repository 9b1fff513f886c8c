"""Which operation of one rank is which of another."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups, number_in_group
from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.model.schema import NONE


def places(pieces: Mapping[int, Piece], names: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """For each rank's operations, a row each: step, stretch, name's code, number among those of the three before it.

    Where the ranks run a name equally often in a step, the n-th is the n-th of the others, whatever lies between; the
    stretch is 0. Where one runs it more often, the n-th of all would be compared with another part of the program:
    there only those launched between the same two communication calls are, if the ranks make as many of these.

    Args:
        pieces: each rank's operations (`ops`) and its hosts' work (`host`).
        names: of each operation the code of its name over all ranks; -1 for what is not compared.
    """
    steps = np.unique(np.concatenate([piece.ops["step"].to_numpy() for piece in pieces.values()]))
    size = max(int(code.max(initial=NONE)) for code in names.values()) + 1
    runs, calls = {}, []
    for rank, piece in pieces.items():
        row = np.searchsorted(steps, piece.ops["step"].to_numpy())
        runs[rank] = row * size + names[rank]
        calls.append(np.bincount(row[_is_call(piece)], minlength=len(steps)))
    held = np.stack([np.bincount(own[names[rank] != NONE], minlength=len(steps) * size) for rank, own in runs.items()])
    fewest = np.where(held > 0, held, held.max(initial=0) + 1).min(axis=0)
    has_same_calls = np.ptp(np.stack(calls), axis=0) == 0
    is_uneven = (held.max(axis=0) > fewest) & np.repeat(has_same_calls, size)
    found = {}
    for rank, piece in pieces.items():
        stretch = np.zeros(len(piece.ops), dtype=np.int64)
        if is_uneven.any():
            stretch = np.where((names[rank] != NONE) & is_uneven[runs[rank]], _calls_before(piece), 0)
        found[rank] = _numbered(piece.ops, stretch, names[rank])
    return found


def calls_passed(piece: Piece) -> np.ndarray:
    """For each piece of the rank's host work how many operations of communication were launched before it, in all."""
    launch = piece.ops["launch"].to_numpy()
    begins = np.zeros(len(piece.host), dtype=np.int64)
    begins[launch[_is_call(piece) & (launch != NONE)]] = 1
    passed: np.ndarray = np.cumsum(begins) - begins
    return passed


def _is_call(piece: Piece) -> np.ndarray:
    return (piece.ops["call"] != NONE).to_numpy()


def _calls_before(piece: Piece) -> np.ndarray:
    """The same of each operation, by the work that launched it, within its step; 0 where no launch is known."""
    launch, step = piece.ops["launch"].to_numpy(), piece.ops["step"].to_numpy()
    passed = np.append(calls_passed(piece), 0)[launch]
    known = launch != NONE
    before = np.zeros(len(launch), dtype=np.int64)
    before[known] = since_first(passed[known], step[known])
    return before


def since_first(passed: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The numbers as counted from the smallest of their step."""
    groups = Groups.of_numbers(steps)
    return passed - groups.smallest(passed)[groups.of_row]


def _numbered(ops: pd.DataFrame, stretch: np.ndarray, name: np.ndarray) -> np.ndarray:
    """In order of start over all streams: the same program may use other stream numbers."""
    step = ops["step"].to_numpy()
    order = np.argsort(ops["start_ns"].to_numpy(), kind="stable")
    number = np.empty(len(ops), dtype=np.int64)
    keys = {"step": step[order], "stretch": stretch[order], "name": name[order]}
    number[order] = number_in_group(Groups.of(keys, list(keys)).of_row)
    return np.stack([step, stretch, name, number], axis=1)
