"""The windows whose lengths a replay gives: complete steps of all ranks, else what is looked at of each capture.

The first step begins when the host begins it and the earlier operations have ended. A later one begins with its first
operation on the main stream (`main_streams`): communication may run ahead of it, and would in many a changed job. The
last one before recording ends or pauses ends with its last operation.
"""

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.once import once_of_tables
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, table_of


class Windows(Struct, frozen=True):
    """One row of `table` for each window: `rank`, `step` (absent for a whole capture), and the job's nodes around it.

    Attributes:
        table: rank and step.
        begin: node at which each window begins.
        ends: nodes of which the last ends it, one row after the other.
        window_of_end: row of each of those.
        has_steps: they are steps.
    """

    table: pd.DataFrame
    begin: np.ndarray
    ends: np.ndarray
    window_of_end: np.ndarray
    has_steps: bool

    @property
    def steps(self) -> int | None:
        """How many steps of the job; `None` for a whole capture."""
        return self.table["step"].nunique() if self.has_steps else None

    def lengths(self, times: np.ndarray) -> np.ndarray:
        """Length of each window for the times of all nodes; a column for each replay."""
        latest = np.full((len(self.table), times.shape[1]), np.iinfo(np.int64).min)
        np.maximum.at(latest, self.window_of_end, times[self.ends])
        lengths: np.ndarray = latest - times[self.begin]
        return lengths

    def of_job(self, times: np.ndarray) -> np.ndarray:
        """Length of each step of the job, from when its last rank began it to when the last began the next.

        So a rank that was early to begin with lengthens nothing. A capture without steps is as long as from the first
        begin to the last end. One row for each step.
        """
        begins, ends = times[self.begin], self.lengths(times) + times[self.begin]
        step, count = _steps_of(self.table)
        first, last = (np.full((count, times.shape[1]), limit) for limit in (_LAST, _FIRST))
        np.maximum.at(last, step, ends)
        if self.has_steps:
            first[:] = _FIRST
            np.maximum.at(first, step, begins)
        else:
            np.minimum.at(first, step, begins)
        length: np.ndarray = last - first
        return length

    def of_ranks(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """When each rank, in order, begins its first window and ends its last one; a column for each replay."""
        begins, ends = times[self.begin], self.lengths(times) + times[self.begin]
        ranks, codes = np.unique(array_of(self.table, "rank"), return_inverse=True)
        first, last = (np.full((len(ranks), times.shape[1]), limit) for limit in (_LAST, _FIRST))
        np.minimum.at(first, codes, begins)
        np.maximum.at(last, codes, ends)
        return first, last

    def of_slowest(self, times: np.ndarray) -> np.ndarray:
        """The same of the rank that takes longest for all of them, by itself: of ranks that wait for nobody."""
        lengths = self.lengths(times)
        ranks, codes = np.unique(array_of(self.table, "rank"), return_inverse=True)
        total = np.zeros((len(ranks), times.shape[1]), dtype=np.int64)
        np.add.at(total, codes, lengths)
        # Every rank has the same steps, in order.
        slowest = total.argmax(axis=0)
        columns = [lengths[codes == rank, column] for column, rank in enumerate(slowest.tolist())]
        return np.stack(columns, axis=1)


@once_of_tables
def _steps_of(table: pd.DataFrame) -> tuple[np.ndarray, int]:
    """For each window the number of its step among the job's, and how many these are."""
    step, distinct = pd.factorize(table["step"], use_na_sentinel=False)
    return step, len(distinct)


_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def windows_of(job: Job, steps: Steps) -> Windows:
    """Find them."""
    table = steps.table
    complete = complete_steps(table)
    shared = shared_steps(complete, set(job.nodes))
    rows = [_of_rank(job, rank, shared) for rank in job.nodes]
    if not shared or any(len(part) < len(shared) for part in rows):
        rows = [_whole(job, rank, table) for rank in job.nodes]
        shared = []
    parts = [(rank, *window) for rank, windows in zip(job.nodes, rows, strict=True) for window in windows]
    return Windows(
        table=table_of(
            {
                "rank": np.array([part[0] for part in parts], dtype=np.int64),
                "step": pd.array([part[1] if shared else pd.NA for part in parts], dtype="Int64"),
            }
        ),
        begin=np.array([part[2] for part in parts], dtype=np.int64),
        ends=np.concatenate([part[3] for part in parts]),
        window_of_end=np.repeat(np.arange(len(parts)), [len(part[3]) for part in parts]),
        has_steps=bool(shared),
    )


Window = tuple[int, int, np.ndarray]


def _of_rank(job: Job, rank: int, shared: list[int]) -> list[Window]:
    """Step, node where it begins, nodes of which the last ends it."""
    nodes = job.nodes[rank]
    ops, own = nodes.piece.ops, nodes.piece.steps
    step = array_of(ops, "step")
    first = np.flatnonzero(nodes.begins_step & (ops["stream"] == nodes.main_stream).to_numpy() & (step != NONE))
    begins = nodes.start_node[first]
    begins[:1] = nodes.begin_node
    numbers, paused = step[first].tolist(), {*own["step"][own["is_paused"]].tolist()}
    windows = []
    for at, number in enumerate(numbers):
        if number not in shared:
            continue
        is_last = at + 1 == len(numbers) or number in paused
        ends = nodes.end_node[nodes.last_of_streams(step == number)] if is_last else begins[at + 1 : at + 2]
        windows.append((number, int(job.node(rank, begins[at : at + 1])[0]), job.node(rank, ends)))
    return windows


def _whole(job: Job, rank: int, steps: pd.DataFrame) -> list[Window]:
    """The whole capture; of one of which steps were chosen what lies from the first of these to the last."""
    nodes = job.nodes[rank]
    ops = nodes.piece.ops
    start, step = array_of(ops, "start_ns"), array_of(ops, "step")
    numbers = steps.loc[steps["rank"] == rank, "step"].dropna().astype("int64") if len(steps) else step[:0]
    chosen = np.isin(step, numbers)
    is_left_out = (step != NONE) & ~chosen
    held = chosen if chosen[nodes.singles].any() and is_left_out.any() else np.ones(len(ops), dtype=bool)
    singles = nodes.singles[held[nodes.singles]]
    first = singles[start[singles].argmin()]
    ends = job.node(rank, np.unique(nodes.end_node[held]))
    return [(NONE, int(job.node(rank, nodes.start_node[[first]])[0]), ends)]
