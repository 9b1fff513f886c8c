"""The job run again as its graph says, without a change: how far the model explains each step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.breakdown import Headline, Steps
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.waits import CallWaits, Members
from traceanalyzer.analyses.integrity import are_of_different_jobs
from traceanalyzer.analyses.operators.launch_loops import Loops
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.pipelines.shape import in_ring
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.analyses.replay.graph import CircleError
from traceanalyzer.analyses.replay.job import Job, windows_of
from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.analyses.replay.rank_graph import piece_of
from traceanalyzer.analyses.replay.waits import with_waits_alike
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import spilled_arrays, table_of, without_rows
from traceanalyzer.model.trace import LARGE

MOST_OPERATIONS = 8_000_000
"""Of all ranks together that are replayed."""

TOO_LARGE = "the ranks have more operations than are replayed"

CIRCULAR = "by its launches and events an operation would wait for itself: such a capture contradicts itself"

TOO_LITTLE = "the graph holds less than half of a step, as where the launches of a CUDA graph are captured"

APART = "the ranks' captures share no time, and no rank answers another's calls: they are of no one job"

_EMPTY = without_rows(["rank", "step", "has_host", "recorded_ns", "replayed_ns"])


@dataclass(frozen=True, slots=True, repr=False)
class Replay(Result):
    """One row for each rank and step that is complete on all ranks; of a capture without any, one for each rank."""

    engine: Engine | None = field(default=None, compare=False)
    """The graph itself, to be run with changes."""
    why_not: str = ""
    """Why there is no graph."""
    note: str = ""
    """Why the known step without the profiler is not used."""

    title = "Replay of the recorded job"
    keys = ("rank", "step")
    columns = declared(
        rank="Global rank.",
        step="Step; absent for a whole capture.",
        has_host="The rank's capture has launches; without them its host is no part of the graph.",
        recorded_ns="Length of the step, from its first operation on the stream that computes most to the next "
        "step's; or of the capture.",
        replayed_ns="The same when the graph runs with the recorded durations and nothing that it does not explain.",
        error_ns="Recorded − replayed: what no dependency of the graph explains.",
        error_pct="100 · error / recorded.",
    )

    def let_go(self) -> None:
        """Hold no more of the graph than what it is: nothing more is asked of it for now."""
        if self.engine is not None:
            self.engine.let_go()

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        error = table["recorded_ns"] - table["replayed_ns"]
        return self._with(table, {"error_ns": error, "error_pct": percent(error, table["recorded_ns"])})


def per_rank(
    trace: RankTrace,
    members: pd.DataFrame,
    calls: pd.DataFrame,
    groups: pd.DataFrame,
    tree: OperatorTree,
    phase_of_op: np.ndarray,
    loops: Loops,
    same_work: np.ndarray,
) -> pd.DataFrame:
    """The rank's piece of the graph, of the whole capture, in one row."""
    if trace.gpu_ops.empty:
        return pd.DataFrame()
    ring = in_ring(calls, groups)
    piece = piece_of(trace, members, tree, phase_of_op, ring, loops.of_op, same_work)
    return table_of({"operations": [len(trace.gpu_ops)], "piece": [piece.spilled()]})


def let_go(part: pd.DataFrame) -> pd.DataFrame:
    """The rank's row without its piece, for runs that are too large to replay."""
    return part.assign(piece=None)


def across(
    parts: Mapping[int, pd.DataFrame],
    members: Members,
    clocks: Clocks,
    steps: Steps,
    ranks: Ranks,
    call_waits: CallWaits,
    headline: Headline,
    most_replayed: int = MOST_OPERATIONS,
    unprofiled_step_ns: int | None = None,
) -> Replay:
    """Join the pieces, replay them, and compare each step with the recording.

    Where the step without the profiler is known, the profiler's overhead is what explains it.
    """
    if are_of_different_jobs(ranks.table, call_waits.table):
        return Replay(_EMPTY, why_not=APART)
    held = {rank: part for rank, part in parts.items() if len(part)}
    is_large = sum(int(part["operations"].iloc[0]) for part in held.values()) > most_replayed
    if not held or is_large:
        return Replay(_EMPTY, why_not=TOO_LARGE if held else "no GPU operations")
    pieces = with_waits_alike({rank: part["piece"].iloc[0] for rank, part in held.items()})
    offset_ns = clocks.offsets_ns()
    try:
        replay = _replayed(pieces, members, offset_ns, steps)
    except CircleError:
        return Replay(_EMPTY, why_not=CIRCULAR)
    engine = replay.engine
    window_ns = headline.table["window_ns"].astype("float64") / headline.table["steps"].fillna(1)
    if engine is None or engine.before_ns < SHARE * window_ns.max():
        return Replay(_EMPTY, why_not=TOO_LITTLE)
    if unprofiled_step_ns is None:
        return replay
    return replace(replay, note=engine.solve_overhead(unprofiled_step_ns))


def _replayed(pieces: dict[int, Piece], members: Members, offset_ns: Mapping[int, int], steps: Steps) -> Replay:
    job = Job(pieces, members.table, offset_ns)
    if any(len(piece) > LARGE for piece in pieces.values()):
        job = spilled_arrays(job)
    windows = windows_of(job, steps)
    engine = Engine(job, windows)
    lengths = windows.lengths(engine.unchanged)
    has_host = windows.table["rank"].map({rank: not piece.why_no_host for rank, piece in pieces.items()})
    table = windows.table.assign(
        has_host=has_host.astype("boolean"), recorded_ns=lengths[:, 0], replayed_ns=lengths[:, 1]
    )
    return Replay(table[["rank", "step", "has_host", "recorded_ns", "replayed_ns"]], engine)
