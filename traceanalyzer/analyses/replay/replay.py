"""The job run again as its graph says: how far the model explains each step, and what changes gain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

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
from traceanalyzer.analyses.replay.changes import (
    COST_NS,
    ESTIMATED,
    EVEN,
    IDEAL,
    LEAST,
    MOST,
    RUN_TO_RUN,
    TYPICAL,
    Change,
)
from traceanalyzer.analyses.replay.contention import Contention
from traceanalyzer.analyses.replay.graph import NEVER, CircleError, Piece
from traceanalyzer.analyses.replay.job import Job, Lengths, Windows, windows_of
from traceanalyzer.analyses.replay.lengths import Edits, concerning_each, keeps_waits
from traceanalyzer.analyses.replay.peers import MOST_HELD, Peers
from traceanalyzer.analyses.replay.rank_graph import piece_of
from traceanalyzer.analyses.replay.waits import with_waits_alike
from traceanalyzer.analyses.statistics import PERCENT, SHARE
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.errors import UsageError
from traceanalyzer.kinds import MESSAGES
from traceanalyzer.meaning.columns import declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, spilled_arrays, table_of, without_rows
from traceanalyzer.model.trace import LARGE

RESAMPLES, WITHIN_PCT = 1_000, (10, 90)
"""How often steps are weighed anew, and the percentiles of their mean that bound it."""


def step_weights(count: int) -> np.ndarray:
    """Weights of so many steps (columns) in each of many runs (rows).

    Steps are weighed, not drawn: what two steps of eight hold would be missing from one draw in ten.
    """
    return np.random.default_rng(0).dirichlet(np.ones(count), RESAMPLES)


def evened_ends(steps: np.ndarray) -> np.ndarray:
    """The steps (rows) with the mean of both ends for each of them.

    The first step begins with its CPU work and the last one ends with its last operation, the others with the first
    operation of the next: what the first has too much the last lacks.
    """
    evened = steps.astype(float)
    evened[[0, -1]] = evened[[0, -1]].mean(axis=0)
    return evened


def run_to_run(steps: np.ndarray) -> np.ndarray:
    """Between which factors of the mean of these steps the mean of another run lies; of one step `RUN_TO_RUN`."""
    if len(steps) < 2:
        return np.array([1 - RUN_TO_RUN, 1 + RUN_TO_RUN])
    return np.percentile(step_weights(len(steps)) @ evened_ends(steps), WITHIN_PCT) / steps.mean()


class Engine:
    """A job and what its replays are compared with."""

    def __init__(self, job: Job, windows: Windows, estimated_ns: Mapping[str, int]) -> None:
        self.job, self.windows = job, windows
        self._estimated_ns, self._is_solved = {**estimated_ns}, False
        self.contention = Contention(job)
        self.peers = Peers(job, self.contention)
        self.peers.overhead_ns = {**estimated_ns}
        self.edits = Edits(job, self.peers)
        self._replayed: dict[tuple[Change, ...], np.ndarray] = {}

    def let_go(self) -> None:
        """Keep no lengths for changes that are asked for next: they are worked out anew then, to the same answers."""
        self.peers.known.let_go()

    @cached_property
    def unchanged(self) -> np.ndarray:
        """When each node is reached as recorded, and as explained."""
        return self.job.replay(self.job.recorded, self.job.explained)

    @cached_property
    def _steps(self) -> np.ndarray:
        return self.windows.of_job(self.unchanged)

    @property
    def before_ns(self) -> int:
        """Mean recorded step of the job."""
        return round(float(self._steps[:, 0].mean()))

    @property
    def error_ns(self) -> int:
        """Mean distance of a replayed step from the recorded one."""
        return round(float(np.abs(self._steps[:, 0] - self._steps[:, 1]).mean()))

    @property
    def has_hosts(self) -> bool:
        """Whether any rank's capture has the host's side."""
        return any(not nodes.piece.why_no_host for nodes in self.job.nodes.values())

    @property
    def has_cost_of_recording(self) -> bool:
        """Whether any capture holds calls of which is known what writing them down takes."""
        return self._has_records and (self._is_solved or any(self._estimated_ns.values()))

    @cached_property
    def _has_records(self) -> bool:
        return any(array_of(nodes.piece.host, "recorded").any() for nodes in self.job.nodes.values())

    @cached_property
    def unmatched_ns(self) -> int:
        """Time a rank and step in communication calls of which it is not known for how long they wait.

        Of those in no instance all of it; where one lacks a rank what follows its last: the other may come later still.
        """
        steps = self.windows.table["step"].dropna().unique()
        joins, total = self.job.joins, 0
        op, own_ns = array_of(joins, "op"), array_of(joins, "own_ns")
        is_open = array_of(joins, "waits") & ~array_of(joins, "is_whole")
        for rank, nodes in self.job.nodes.items():
            rows = self.job.joins_of(rank)
            open_ns = np.where(nodes.is_of("comm"), nodes.column("ops", "duration_ns"), 0)
            open_ns[op[rows]] = np.where(array_of(joins, "is_whole")[rows], 0, own_ns[rows])
            total += int(open_ns[_in(nodes.column("ops", "step"), steps)].sum())
        of_cpus = is_open & ~self.job.is_of_gpu & _in(array_of(joins, "step"), steps)
        return round((total + int(own_ns[of_cpus].sum())) / max(len(self.windows.table), 1))

    def of_ranks(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """The changes with those to stages as changes to their ranks.

        Raises:
            UsageError: there is no such stage; or another schedule is asked for, which is no replay of this graph.
        """
        if any(change.part == "schedule" for change in changes):
            raise UsageError("another schedule is played, not replayed: ask what_if for it")
        return tuple(each for change in changes for each in self._of_stage(change))

    def _of_stage(self, change: Change) -> tuple[Change, ...]:
        if change.part != "stage":
            return (change,)
        stages = dict(zip(self.job.nodes, self.peers.stages.tolist(), strict=True))
        ranks = frozenset(rank for rank in self.ranks_of_stages if change.ranks is None or stages[rank] in change.ranks)
        if not ranks:
            known = ", ".join(map(str, sorted({stages[rank] for rank in self.ranks_of_stages})))
            raise UsageError(f"{change}: there is no such stage of a pipeline; there are {known}")
        if change.to != IDEAL:
            return (replace(change, part="rank", ranks=ranks),)
        even, no_host = Change("rank", EVEN, ranks, change.steps), Change("cpu", 0.0, ranks, change.steps)
        return even, no_host, Change("collective", 0.0, ranks, change.steps, MESSAGES)

    @cached_property
    def ranks_of_stages(self) -> tuple[int, ...]:
        """Ranks that exchange messages with others: stages of pipelines."""
        return tuple(rank for rank, own in zip(self.job.nodes, self.peers.linked, strict=True) if own.sum() > 1)

    def lengths(self, *changes: Change) -> Lengths:
        """The graph's lengths after the changes, compute relieved of waits that are gone."""
        changes = self.of_ranks(changes)
        before = self.edits.lengths(changes)
        if not self._has_contention:
            return before
        return self.contention.after(before, self.job.replay(before)[:, 0])

    @cached_property
    def _has_contention(self) -> bool:
        """Whether waits slow compute so much that it matters when they go."""
        window_ns = int(self.windows.lengths(self.unchanged)[:, 0].sum()) / max(self.windows.table["rank"].nunique(), 1)
        return bool(self.contention.most_ns > PERCENT / 100 * window_ns)

    def steps_after(self, scenarios: Sequence[tuple[Change, ...]]) -> np.ndarray:
        """Length of every step of the job (rows) after each set of changes (columns).

        Compute beside waits that a change takes away becomes shorter, too.
        """
        found = []
        at_once = max(1, MOST_HELD // max(1, len(self.job.source)))
        for begin in range(0, len(scenarios), at_once):
            some = [self.of_ranks(changes) for changes in scenarios[begin : begin + at_once]]
            times = self.job.order.latest(self._weights(some))
            if self._has_contention:
                times = self.job.order.latest(self._weights(some, times))
            waits = np.array([keeps_waits(changes) for changes in some])
            found.append(np.where(waits, self.windows.of_job(times), self.windows.of_slowest(times)))
        return np.concatenate(found, axis=1) if found else np.empty((len(self._steps), 0), dtype=np.int64)

    def shortened(self, scenarios: Sequence[tuple[Change, ...]]) -> np.ndarray:
        """By how much each set of changes (columns) shortens each part of the job (rows) in ns; never negative.

        Parts are operations, stretches of CPUs, transfers, and ranks' edges that are cut, by the length they had.
        """
        every = [(), *map(self.of_ranks, scenarios)]
        concerned = [concerning_each(self.job.nodes, changes) for changes in every]
        own = [[self._of_rank(rank, changes) for rank, changes in each.items()] for each in concerned]
        weights = np.stack([np.concatenate(each) for each in own], axis=1)
        cut = np.where(weights <= NEVER, np.maximum(weights[:, :1], 0), 0)
        before, *after = (_parts(self.edits.lengths(changes)) for changes in every)
        shorter = np.maximum(before[:, None] - np.stack(after, axis=1), 0)
        return np.concatenate([shorter, cut[:, 1:]])

    def _weights(self, scenarios: Sequence[tuple[Change, ...]], times: np.ndarray | None = None) -> np.ndarray:
        """Length of every edge after each set of changes; what many sets do to a rank alike is computed once.

        With the `times` of their replays compute is as long as the waits that are left make it.
        """
        by_rank = [concerning_each(self.job.nodes, changes) for changes in scenarios]
        # Rank by rank, and back again: most of what is known of the last ones is kept.
        ranks, own = [*self.job.nodes], dict[int, list[np.ndarray]]()
        for rank in ranks if times is None else reversed(ranks):
            own[rank] = [
                self._of_rank(rank, each[rank]) if times is None else self._relieved(rank, each[rank], times[:, column])
                for column, each in enumerate(by_rank)
            ]
        columns = []
        for place, changes in enumerate(scenarios):
            transfers, each = self.edits.transfers(changes), [own[rank][place] for rank in ranks]
            columns.append(self.job.joined(each, transfers, has_waits=keeps_waits(changes)))
        return np.stack(columns, axis=1)

    def _of_rank(self, rank: int, changes: tuple[Change, ...]) -> np.ndarray:
        """Length of the rank's own edges after changes that concern it."""
        return self.peers.known.get_or_make(
            ("weights", rank, changes), lambda: self.job.own_weights(rank, self.edits.timing(rank, changes))
        )

    def _relieved(self, rank: int, changes: tuple[Change, ...], times: np.ndarray) -> np.ndarray:
        """The same with compute as long as the waits that are left by these times make it."""
        return self.job.own_weights(rank, self.contention.timing_after(rank, self.edits.timing(rank, changes), times))

    @property
    def costs(self) -> tuple[tuple[Change, ...], ...]:
        """What stands for the job without the profiler: its typical overhead first, then the least and the most.

        One where the overhead is known; nothing where nothing is known of it: then only the profiled job is known.
        """
        if not self.has_cost_of_recording:
            return ((),)
        words: dict[int, str] = {}
        for word, ns in self.peers.overhead_ns.items():
            words.setdefault(ns, word)
        return tuple((Change("profiler", word),) for word in words.values())

    def solve_overhead(self, step_ns: float) -> str:
        """Take the profiler's overhead for what explains a mean step that long; why it is not taken, or "".

        That step is the mean of one run: what the overhead may be is what explains it, give or take `_run_to_run`, and
        lies within the estimate, where there is one, as far as that explains the step, too.
        """
        if not self._has_records:
            return "The step without the profiler is not used: the trace has no CPU calls that a profiler slows."
        costs, steps = self._steps_by_overhead
        within = PERCENT / 100 * step_ns
        if step_ns > steps[0] + within or step_ns < steps[-1] - within:
            return (
                f"The step without the profiler is not used: the trace explains {steps[-1] / 1e6:.1f} to "
                f"{steps[0] / 1e6:.1f} ms, not {step_ns / 1e6:.1f} ms."
            )
        nearest_ns = np.clip(step_ns, steps[-1], steps[0])
        shortest_ns, longest_ns = nearest_ns * self._run_to_run
        least, likely, most = np.interp([-longest_ns, -nearest_ns, -shortest_ns], -steps, costs)
        most = most if shortest_ns > steps[-1] else max(COST_NS[MOST], least)
        known = self._estimated_ns
        if known[MOST] and least <= known[MOST] and most >= known[LEAST]:
            least, most = max(least, known[LEAST]), min(most, known[MOST])
        is_any = known[MOST] and shortest_ns <= steps[-1] and longest_ns >= steps[0]
        found = (np.clip(known[TYPICAL] if is_any else likely, least, most), least, most)
        self._take_overhead(dict(zip(COST_NS, map(round, found), strict=True)))
        self._is_solved = True
        return ""

    @cached_property
    def _steps_by_overhead(self) -> tuple[np.ndarray, np.ndarray]:
        """Overheads of a call, from 0 until more of it shortens no step, and the mean steps at them."""
        costs, steps = [0], [float(self.before_ns)]
        while costs[-1] < COST_NS[MOST] or steps[-1] < steps[-4] * (1 - PERCENT / 100):
            each = [costs[-1] + (number + 1) * max(COST_NS[LEAST], costs[-1] // 3) for number in range(len(COST_NS))]
            self._take_overhead(dict(zip(COST_NS, each, strict=True)))
            steps += self.steps_after([(Change("profiler", word),) for word in COST_NS]).mean(axis=0).tolist()
            costs += each
        self._take_overhead(self._estimated_ns)
        return np.array(costs), np.minimum.accumulate(steps)

    @cached_property
    def _run_to_run(self) -> np.ndarray:
        """Between which factors of its mean step a run of the job lies, by its recorded steps."""
        return run_to_run(self._steps[:, 0])

    def _take_overhead(self, overhead_ns: Mapping[str, int]) -> None:
        self.let_go()
        self.peers.overhead_ns, self._replayed = {**overhead_ns}, {}

    def steps(self, scenarios: Sequence[tuple[Change, ...]]) -> np.ndarray:
        """Length of every step of the job (rows) after each set of changes (columns), each replayed once."""
        if not scenarios:
            return np.empty((len(self._steps), 0), dtype=np.int64)
        missing = [changes for changes in dict.fromkeys(scenarios) if changes not in self._replayed]
        if missing:
            self._replayed |= zip(missing, self.steps_after(missing).T, strict=True)
        return np.stack([self._replayed[changes] for changes in scenarios], axis=1)


def _parts(lengths: Lengths) -> np.ndarray:
    """Length of every operation, stretch of a CPU, and transfer; none of one that waits for nobody or is not made."""
    own = [part for timing in lengths.timing.values() for part in (timing.duration_ns, timing.host.ns)]
    return np.concatenate([*own, np.maximum(lengths.transfer_ns, 0) * lengths.has_waits]).astype(np.float32)


def _in(steps: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Which of these are in the chosen steps; all where none are chosen."""
    return np.isin(steps, chosen) if len(chosen) else np.ones(len(steps), dtype=bool)


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
        is_estimated = ranks.table["format"].eq(ESTIMATED).any()
        engine = _engine(pieces, members, offset_ns, steps, COST_NS if is_estimated else dict.fromkeys(COST_NS, 0))
        lengths = engine.windows.lengths(engine.unchanged)
    except CircleError:
        return Replay(_EMPTY, why_not=CIRCULAR)
    window_ns = headline.table["window_ns"].astype("float64") / headline.table["steps"].fillna(1)
    if engine.before_ns < SHARE * window_ns.max():
        return Replay(_EMPTY, why_not=TOO_LITTLE)
    windows = engine.windows.table
    has_host = windows["rank"].map({rank: not piece.why_no_host for rank, piece in pieces.items()}).astype("boolean")
    table = windows.assign(has_host=has_host, recorded_ns=lengths[:, 0], replayed_ns=lengths[:, 1])
    note = engine.solve_overhead(unprofiled_step_ns) if unprofiled_step_ns is not None else ""
    return Replay(table[["rank", "step", "has_host", "recorded_ns", "replayed_ns"]], engine, note=note)


def _engine(
    pieces: dict[int, Piece], members: Members, offset_ns: Mapping[int, int], steps: Steps, cost_ns: Mapping[str, int]
) -> Engine:
    job = Job(pieces, members.table, offset_ns)
    if any(len(piece) > LARGE for piece in pieces.values()):
        job = spilled_arrays(job)
    return Engine(job, windows_of(job, steps), cost_ns)
