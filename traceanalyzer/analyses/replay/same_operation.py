"""Which operation of one rank is which of another."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups, number_in_group
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of


class SameOperations:
    """The operations of all ranks, of which those of one name at one place (`places`) are the same.

    What communicates, and what belongs to no step of a job with steps, is compared with nothing.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._known: dict[str, int] = {}

    @cached_property
    def names(self) -> dict[int, np.ndarray]:
        """Code of each operation's name over all ranks; -1 for what is not compared."""
        found = {}
        for rank, nodes in self._job.nodes.items():
            ops = nodes.piece.ops
            names = ops["name"].cat
            of_category = np.array(
                [self._known.setdefault(name, len(self._known)) for name in names.categories.tolist()] + [NONE]
            )
            counted = (array_of(ops, "call") == NONE) & self.is_in_step(array_of(ops, "step"))
            found[rank] = np.where(counted, of_category[names.codes.to_numpy()], NONE)
        return found

    @property
    def count(self) -> int:
        """How many names there are."""
        return len(self.names) and len(self._known)

    def is_in_step(self, step: np.ndarray) -> np.ndarray:
        """Which of these are in a step; all of a job without steps."""
        return (step != NONE) if self._has_steps else np.ones(len(step), dtype=bool)

    @cached_property
    def _has_steps(self) -> bool:
        return any((nodes.piece.ops["step"] != NONE).any() for nodes in self._job.nodes.values())

    @cached_property
    def _numbered(self) -> "Numbered":
        pieces = {rank: nodes.piece for rank, nodes in self._job.nodes.items()}
        of_rank = places(pieces, self.names)
        return Numbered({rank: (of_rank[rank], name != NONE) for rank, name in self.names.items()})

    @property
    def keys(self) -> dict[int, np.ndarray]:
        """For each rank's operations the number of name and place, which is the same on all ranks; -1 without."""
        return self._numbered.keys

    @cached_property
    def table_ns(self) -> np.ndarray:
        """The recorded durations by that number (rows) and rank (columns)."""
        return self._numbered.table([nodes.column("ops", "duration_ns") for nodes in self._job.nodes.values()])


class Numbered:
    """Rows of all ranks that have the same key.

    Attributes:
        keys: for each rank the number of each row's key, -1 where it is not held.
    """

    def __init__(self, parts: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> None:
        """Number the keys (a row each) of each rank's rows; with them goes which rows are held."""
        lengths = [len(key) for key, _ in parts.values()]
        keys, held = (np.concatenate([part[place] for part in parts.values()]) for place in range(2))
        self._code = np.full(len(keys), NONE, dtype=np.int64)
        columns = {str(place): own for place, own in enumerate(keys[held].T)}
        self._code[held] = Groups.of(columns, list(columns), by_appearance=True).of_row
        self._held, self._column = held, np.repeat(np.arange(len(parts)), lengths)
        self.keys = dict(zip(parts, np.split(self._code, np.cumsum(lengths)[:-1]), strict=True))

    def table(self, lengths: Sequence[np.ndarray]) -> np.ndarray:
        """The sums of the ranks' values by number (rows) and rank (columns)."""
        shape = (int(self._code.max(initial=NONE)) + 1, len(self.keys))
        cell = self._code[self._held] * shape[1] + self._column[self._held]
        sums = np.bincount(cell, np.concatenate(lengths)[self._held], shape[0] * shape[1])
        return sums.reshape(shape).astype(float)


def places(pieces: Mapping[int, Piece], names: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """For each rank's operations, a row each: step, stretch, name's code, number among those of the three before it.

    Where the ranks run a name equally often in a step, the n-th is the n-th of the others, whatever lies between; the
    stretch is 0. Where one runs it more often, the n-th of all would be compared with another part of the program:
    there only those launched between the same two communication calls are, if the ranks make as many of these.

    Args:
        pieces: each rank's operations (`ops`) and its hosts' work (`host`).
        names: of each operation the code of its name over all ranks; -1 for what is not compared.
    """
    steps = np.unique(np.concatenate([array_of(piece.ops, "step") for piece in pieces.values()]))
    size = max(int(code.max(initial=NONE)) for code in names.values()) + 1
    runs, calls = {}, []
    for rank, piece in pieces.items():
        row = np.searchsorted(steps, array_of(piece.ops, "step"))
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


def matched(own: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one rank's operations and of another's that are the same, by their `SameOperations.keys`."""
    at = np.full(max(own.max(initial=NONE), other.max(initial=NONE)) + 2, NONE, dtype=np.int64)  # the last is of -1
    at[other] = np.where(other == NONE, NONE, np.arange(len(other)))
    row = at[own]
    held = np.flatnonzero(row != NONE)
    return held, row[held]


def calls_passed(piece: Piece) -> np.ndarray:
    """For each piece of the rank's host work how many operations of communication were launched before it, in all."""
    launch = array_of(piece.ops, "launch")
    begins = np.zeros(len(piece.host), dtype=np.int64)
    begins[launch[_is_call(piece) & (launch != NONE)]] = 1
    passed: np.ndarray = np.cumsum(begins) - begins
    return passed


def _is_call(piece: Piece) -> np.ndarray:
    return (piece.ops["call"] != NONE).to_numpy()


def _calls_before(piece: Piece) -> np.ndarray:
    """The same of each operation, by the work that launched it, within its step; 0 where no launch is known."""
    launch, step = array_of(piece.ops, "launch"), array_of(piece.ops, "step")
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
    """In order of launch over all streams, whose numbers may be others where the same program runs.

    Of what one call launched, as a graph, or of which no launch is known, in order of start: of two streams now one may
    come first there, now the other.
    """
    step = array_of(ops, "step")
    order = np.lexsort((array_of(ops, "start_ns"), array_of(ops, "launch")))
    number = np.empty(len(ops), dtype=np.int64)
    keys = {"step": step[order], "stretch": stretch[order], "name": name[order]}
    number[order] = number_in_group(Groups.of(keys, list(keys)).of_row)
    return np.stack([step, stretch, name, number], axis=1)
