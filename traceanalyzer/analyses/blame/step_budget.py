"""What each step of a rank needs of its own, part by part and by name."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, all_known, stack
from traceanalyzer.analyses.blame.slow_transfers import SlowerCalls, is_own
from traceanalyzer.analyses.breakdown import by_rank
from traceanalyzer.analyses.communication.waits import CallWaits, exposed_of, moves_and_waits
from traceanalyzer.analyses.grouping import Groups, by_step_and_rank, number_in_group, sums_at
from traceanalyzer.analyses.host import cpu_time, host_names, idle
from traceanalyzer.analyses.host.activity import (
    NOTHING,
    Activity,
    Nesting,
    activity_of,
    range_around,
    thread_of_launch,
    waiting,
)
from traceanalyzer.analyses.host.api_calls import into_full_queue
from traceanalyzer.analyses.host.cpu_time import compiler_of
from traceanalyzer.analyses.host.idle import Gaps
from traceanalyzer.analyses.intervals import Intervals, overlapping, unions
from traceanalyzer.analyses.kernels import taken_of
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.pipelines.pipeline import Pipeline, has_known_stages
from traceanalyzer.analyses.statistics import PERCENT, SHARE, SIGMAS, deviation
from traceanalyzer.meaning.columns import Adds, Column, declared
from traceanalyzer.meaning.vocabulary import DATA, GAP_CAUSES, HOST, IDLE_CAUSES, LAUNCH, NAMED_CAUSES, SHORT_NS, SYNC
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    column_of,
    columns_as_they_are,
    columns_of,
    known_of,
    picked,
    rows_named,
    rows_where,
    sorted_by,
    table_of,
    texts_of,
    under_each_other,
    whole_of,
    with_columns,
    without_rows,
)
from traceanalyzer.selection import host_spans

# What each step of a rank needs of its own: compute, copies, idle by cause, step by step without a gap between.


OWN_PARTS = ("compute_ns", "exposed_copy_ns", *idle.PARTS)
"""Time that is a rank's own doing; the rest of its time is communication that no compute hides."""

STEP_PARTS_COLUMNS = (
    "step",
    "begin_ns",
    "end_ns",
    "is_partial",
    *OWN_PARTS,
    "met_ns",
    "needed_host_ns",
    "loading_ns",
    "copy_ns",
    "operations",
)


def step_parts(trace: RankTrace) -> pd.DataFrame:
    """A row for each step, or one of step -1 for a capture without: `COLUMNS`.

    `met_ns` is the idle time in which the host waits for peers in a collective of the CPU: no work of its own, so it is
    no part of `host_ns` here.
    `needed_host_ns` is the time of its range on the host, and up to the next one's, less that in blocking calls: what
    launching it takes; `loading_ns` is the time in it that is the data loader's.
    """
    windows = _windows(trace)
    if windows.empty:
        return without_rows(STEP_PARTS_COLUMNS)
    begins, ends = array_of(windows, "begin_ns"), array_of(windows, "end_ns")
    compute, comm, copy = (unions(trace)[kind] for kind in ("compute", "comm", "copy"))
    gaps, of_gap = step_gaps(trace, windows)
    causes = _causes(trace, gaps, begins[of_gap], ends[of_gap])
    columns = {
        **columns_of(windows),
        "compute_ns": compute.covered_ns(begins, ends),
        "exposed_copy_ns": (copy - (compute | comm)).covered_ns(begins, ends),
        **{part: sums_at(of_gap, causes[part].to_numpy(), len(windows)) for part in (*idle.PARTS, "met_ns")},
        "needed_host_ns": _host_needed(trace, windows),
        "loading_ns": _loading(trace, windows),
        "copy_ns": (copy - compute).covered_ns(begins, ends),
        "operations": _operations(trace, windows),
    }
    return table_of({name: columns[name] for name in STEP_PARTS_COLUMNS})


def _causes(trace: RankTrace, gaps: Gaps, begins: np.ndarray, ends: np.ndarray) -> pd.DataFrame:
    """Each gap's part in [begin, end) by cause, `met_ns` taken from the host's."""
    causes = idle.parts(trace, gaps, begins, ends)
    starts, launched = (np.clip(times, begins, ends) for times in (gaps.starts, gaps.launched))
    met = np.minimum(waiting(trace).covered_ns(starts, launched), causes[HOST.column].to_numpy())
    return causes.assign(**{HOST.column: causes[HOST.column] - met, "met_ns": met})


def step_gaps(trace: RankTrace, windows: pd.DataFrame) -> tuple[Gaps, np.ndarray]:
    """The stretches in which nothing runs with the rows of the steps that they lie in, once for each such step."""
    gaps = idle.find(trace)
    begins, ends = array_of(windows, "begin_ns"), array_of(windows, "end_ns")
    gap, row = overlapping(gaps.starts, gaps.ends, Intervals(begins, ends))
    return gaps.take(gap), row


def _windows(trace: RankTrace) -> pd.DataFrame:
    """Step, begin, end and flag of each step that has a window, in order."""
    steps = trace.steps
    names = ["step", "begin_ns", "end_ns", "is_partial"]
    if trace.gpu_ops.empty:
        return without_rows(names)
    held = np.flatnonzero(known_of(steps, "start_ns"))
    if not len(held):
        whole = (NONE, trace.window.start_ns, trace.window.end_ns, trace.meta.is_truncated)
        return pd.DataFrame([whole], columns=names)
    table = table_of(
        {
            "step": array_of(steps, "step")[held],
            "begin_ns": whole_of(steps, "start_ns")[held],
            "end_ns": whole_of(steps, "end_ns")[held],
            "is_partial": array_of(steps, "is_partial")[held],
            "row": held,
        }
    )
    if trace.window.steps is not None:
        table = table[table["step"].isin(trace.window.steps)]
    return table.reset_index(drop=True)


def _host_needed(trace: RankTrace, windows: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """Length of each step's range on the host without calls that block it or find the queue full; absent without.

    Where waits for the GPU leave no events (JAX's hosts wait on their own futures) what is work cannot be told either.
    """
    if "row" not in windows or trace.meta.format == "xplane":
        return pd.array([pd.NA] * len(windows), dtype="Int64")
    starts, ends = _host_times(trace, windows)
    return all_known(ends - starts - _blocked(trace).covered_ns(starts, ends))


def _blocked(trace: RankTrace) -> Intervals:
    """When a call blocks the host or finds the queue full, or the host waits in a collective of the CPU."""
    rows, since = idle.blocking(trace)
    queued = into_full_queue(trace)
    called, returned = (array_of(trace.api_calls, name) for name in ("start_ns", "end_ns"))
    blocked = Intervals.of(np.append(since, called[queued]), np.append(returned[rows], returned[queued]))
    return blocked | waiting(trace)


def _loading(trace: RankTrace, windows: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """What of each step's range on the host is in the data loader, and waits for no GPU and no peer; absent without."""
    if "row" not in windows:
        return pd.array([pd.NA] * len(windows), dtype="Int64")
    return all_known((idle.during(trace, DATA) - _blocked(trace)).covered_ns(*_host_times(trace, windows)))


def _host_times(trace: RankTrace, windows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """When the host is at each step."""
    starts, ends = host_spans(trace.steps)
    return starts[windows["row"]], ends[windows["row"]]


def _operations(trace: RankTrace, windows: pd.DataFrame) -> np.ndarray:
    """How many GPU operations each step launched; all of them without steps."""
    if "row" not in windows:
        return np.full(len(windows), len(trace.gpu_ops), dtype=np.int64)
    of_step = trace.op_step[trace.op_step != NONE]
    counts: np.ndarray = np.bincount(of_step, minlength=len(trace.steps))[array_of(windows, "row")]
    return counts


# Steps in which a rank's clock is set: longer or shorter than everybody else's by what no wait explains.


def clock_jumps_ns(table: pd.DataFrame, calls: pd.DataFrame) -> pd.Series:
    """By how much the rank's clock is set in each row of `StepNeeds`; absent where it is not, or not known.

    The step differs from the others' by more than chance, and from then on the rank's calls (of `CallWaits`) end as
    much later than their partners': what really takes a rank longer ends for all at once. Known from three steps and
    ranks on.
    """
    jumps = pd.Series(pd.NA, index=table.index, dtype="Int64")
    held = table[table["step"].notna() & ~table["is_partial"].astype(bool)]
    wide = by_step_and_rank(held.assign(length=held["end_ns"] - held["begin_ns"]), "length")
    if min(wide.shape) < 3 or wide.isna().any(axis=None):
        return jumps
    off = wide.sub(wide.median(axis=1), axis=0)
    least = max(SIGMAS * deviation(off.to_numpy().ravel()), PERCENT / 100 * float(wide.median(axis=None)))
    for rank in off.columns[(off.abs() > least).any()]:
        step = off[rank].abs().idxmax()
        jump = float(off[rank][step])
        if _is_moved(calls, int(rank), int(step), jump):
            jumps[held.index[(held["rank"] == rank) & (held["step"] == step)]] = round(jump)
    return jumps


def _is_moved(calls: pd.DataFrame, rank: int, step: int, jump_ns: float) -> bool:
    """Whether the rank's calls end later by a jump, beside each partner's, after a step than before it.

    For what was before the capture's first step its first call stands; of calls that find their partners only from
    the jump on it is so.
    """
    is_own = calls["rank"] == rank
    own = rows_where(calls, is_own)[["instance", "step", "end_ns"]].astype("Float64")
    others = rows_where(calls, ~is_own)[["instance", "rank", "end_ns"]].dropna().astype("Float64")
    pairs = own.merge(others, on="instance")
    pairs = pairs.sort_values("end_ns_x").assign(apart=pairs["end_ns_x"] - pairs["end_ns_y"])
    first = pairs[pairs["step"] < step] if (own["step"] < step).any() else pairs.drop_duplicates("rank")
    before, later = (own.groupby("rank")["apart"].median() for own in (first, pairs[pairs["step"] > step]))
    moved = (later - before).dropna()
    return bool(abs(moved.median() - jump_ns) < SHARE * abs(jump_ns)) if len(moved) else len(later) > 0


# What each rank's steps need of their own, beside how long the rank waits for others in them.


_CAUSES = tuple(cause.column for cause in GAP_CAUSES if cause is not LAUNCH)

PARTS = ("compute_ns", "exposed_copy_ns", *_CAUSES, "transfer_ns")
"""What a rank's step may take longer by than its peers'; transfer as far as its calls move data for longer than theirs.

Launch latency and the GPU's turnaround are none of them: peers that are ahead hide theirs while they wait.
"""


class StepNeeds(Result):
    """One row for each rank and step (absent without steps); they follow each other without a gap."""

    title = "What each rank's steps need"
    is_detail = True
    keys = ("rank", "step")
    columns = declared(
        rank="Global rank.",
        step="Step; absent for a capture without.",
        begin_ns=Column.moment("Where the step begins."),
        end_ns="Where it ends.",
        is_partial="The capture misses its end, or operations of it.",
        compute_ns=Column.time("Time in which a compute kernel runs."),
        exposed_copy_ns="Time in which a copy runs, but no compute or communication.",
        **{cause.column: Column.time(f"Idle: {cause.label}. {cause.definition}") for cause in IDLE_CAUSES},
        transfer_ns="Time in which a call moves data, hidden by compute or not; it is nobody's own.",
        exposed_wait_ns=Column.time(
            "Time in which a call waits for another rank and no compute runs, beside a transfer or "
            "not; and idle time in which the host waits for others in a collective of the CPU."
        ),
        met_ns="Idle time in which the host waits in a collective of the CPU, for others or its transfer.",
        exposed_transfer_ns="Rest of the exposed communication in which data moves.",
        slower_transfer_ns="Time in which a call still moves data that the same call of a sister group "
        "(see slower_calls) would have moved, and no compute runs, beside a wait or not; "
        "0 of ranks whose partner's links are slow.",
        exposed_unmatched_ns="Rest of the exposed communication: may be either.",
        needed_host_ns="Time of the step's range on the host, and up to the next one's, less that in calls that "
        "block it or find the queue full, and in collectives of the CPU while its threads do nothing else.",
        loading_ns="Time of that range, and up to the next one's, in the data loader, less that in which "
        "it waits for its GPU or for peers, as where all ranks count the tokens that they have loaded.",
        copy_ns="Time in which a copy runs, but no compute: beside communication it may hold that up.",
        operations=Column.count("GPU operations that the step launched.", adds=Adds.NONE),
        clock_jump_ns=Column.time(
            "By how much the rank's clock is set in it: nothing is concluded of that. Absent where it is not.",
            is_secondary=True,
        ),
        peers="Ranks that do the same work: all, or of a pipeline the same stage of each.",
    )


def step_needs_per_rank(_trace: RankTrace, waits: pd.DataFrame, parts_of_steps: pd.DataFrame) -> pd.DataFrame:
    """The rank's steps, and the stretches in which communication but no compute runs (`is_step` false)."""
    if parts_of_steps.empty:
        return pd.DataFrame()
    steps = with_columns(parts_of_steps, is_step=True)
    return under_each_other([steps, _stretches(parts_of_steps, waits)]) if len(waits) else steps


def host_needs_ns(needs: pd.DataFrame, least: int = 1) -> pd.Series:
    """By rank, the host time that a step takes: the mean of these rows' steps, as far as it is known.

    Ranks of which it is known for fewer than `least` steps are left out.
    """
    known = needs["needed_host_ns"].astype("Float64").groupby(needs["rank"]).agg(["count", "mean"])
    return known.loc[known["count"] >= least, "mean"].astype("float64")


def _stretches(parts_of_steps: pd.DataFrame, exposed: pd.DataFrame) -> pd.DataFrame:
    """A row for each; every other column is a step's, so that the columns keep their types."""
    times = {"begin_ns": array_of(exposed, "start_ns"), "end_ns": array_of(exposed, "end_ns")}
    firsts = np.zeros(len(exposed), dtype=np.int64)
    held = columns_as_they_are(parts_of_steps)
    columns = {name: times[name] if name in times else values.take(firsts) for name, values in held.items()}
    return table_of({**columns, "is_step": False})


def step_needs_across(
    parts: Mapping[int, pd.DataFrame], call_waits: CallWaits, slower_calls: SlowerCalls, pipeline: Pipeline
) -> StepNeeds:
    """Split each step's exposed communication, waits first: a wait under a transfer on another stream is one."""
    every = stack(parts, ("rank", *STEP_PARTS_COLUMNS, "is_step"))
    if every.empty:
        return StepNeeds(without_rows(StepNeeds.columns))
    is_step = every["is_step"].to_numpy(dtype=bool)
    steps = picked(every, is_step, ("rank", *STEP_PARTS_COLUMNS)).astype(_TYPES)
    exposed = picked(every, ~is_step, ("rank", "begin_ns", "end_ns"))
    steps, exposed = (own.rename(columns={"begin_ns": "start_ns"}) for own in (steps, exposed))
    table = by_rank(_split, steps, exposed, call_waits.table, _excess_at_ends(slower_calls.table))
    table = table.rename(columns={"start_ns": "begin_ns"})
    step = table["step"].astype("Int64")
    table = _with_meetings(table).assign(step=step.where(step != NONE), peers=_peers(table["rank"], pipeline))
    return StepNeeds(table.assign(clock_jump_ns=clock_jumps_ns(table, call_waits.table)))


def _excess_at_ends(slower: pd.DataFrame) -> pd.DataFrame:
    """Of each slower call what it takes longer, at its end; not of ranks whose partner's links are slow."""
    slower = slower[is_own(slower)]
    return slower.assign(start_ns=slower["end_ns"] - slower["longer_ns"])[["rank", "start_ns", "end_ns"]]


def _with_meetings(table: pd.DataFrame) -> pd.DataFrame:
    """Idle time in collectives of the CPU as waits and transfers: the least of the ranks is what data takes.

    Of a rank that is alone in them it may be either.
    """
    met = table["met_ns"].where(table["met_ns"] > 0).groupby(table["step"])
    least = met.transform("min").fillna(0).astype("int64")
    is_alone = met.transform("count") < 2
    waited = (table["met_ns"] - least).clip(lower=0)
    return table.assign(
        exposed_wait_ns=table["exposed_wait_ns"] + waited,
        exposed_transfer_ns=table["exposed_transfer_ns"] + (table["met_ns"] - waited).mask(is_alone, 0),
        exposed_unmatched_ns=table["exposed_unmatched_ns"] + table["met_ns"].where(is_alone, 0),
    )


def _split(steps: pd.DataFrame, stretches: pd.DataFrame, calls: pd.DataFrame, late: pd.DataFrame) -> pd.DataFrame:
    exposed = exposed_of(stretches)
    begins, ends = array_of(steps, "start_ns"), array_of(steps, "end_ns")
    transfer, wait = moves_and_waits(calls)
    own_wait = wait & exposed
    own_transfer = (transfer & exposed) - own_wait
    rest = exposed - own_wait - own_transfer
    longer = Intervals.of(*(late[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns")))
    return with_columns(
        steps,
        transfer_ns=transfer.covered_ns(begins, ends),
        **{
            name: intervals.covered_ns(begins, ends)
            for name, intervals in (
                ("exposed_wait_ns", own_wait),
                ("exposed_transfer_ns", own_transfer),
                ("slower_transfer_ns", longer & exposed),
                ("exposed_unmatched_ns", rest),
            )
        },
    )


_TYPES = {
    **dict.fromkeys(("step", "begin_ns", "end_ns", *OWN_PARTS, "met_ns", "copy_ns", "operations"), "int64"),
    **dict.fromkeys(("needed_host_ns", "loading_ns"), "Int64"),
    "is_partial": "bool",
}


def _peers(rank: pd.Series, pipeline: Pipeline) -> pd.Series:
    if not len(pipeline):
        return pd.Series("all", index=rank.index)
    names = "stage " + pipeline.table["stage"].astype("str")
    names = names.where(has_known_stages(pipeline.table), "a stage, rank " + pipeline.table["rank"].astype("str"))
    return rank.map(dict(zip(pipeline.table["rank"], names, strict=True))).fillna("all")


# Names of what steps consist of: numbers and texts, operators with their shapes.


_PRODUCT = re.compile(r"mm(_out)?$|matmul|linear|conv")

OF_DATA = re.compile(
    r"group(ed)?_?(gemm|mm|matmul)|gemm_?grouped|GroupProblemShape|experts?(?![a-z])|moe|varlen|ragged|paged|decode(?!r)",
    re.IGNORECASE,
)
"""Names of kernels and operators whose work depends on what they read (tokens of each expert, lengths), in any grid."""

HAS_KNOWN_WORK = re.compile(r"aten::(?!\w*(embedding|index|scatter|nonzero|unique|sort|masked)).* of \[")
"""Operators whose shapes tell what there is to do: not where indices decide how often one place is written.

One without shapes among others that have them, such as an optimizer of another shard, may have more to do.
"""


def called(host_ops: pd.DataFrame, rows: np.ndarray) -> pd.Categorical:
    """`aten::mm of [8192, 8192] × [8192, 8192]`, by row of the operator."""
    keys = ["name", "shapes"]
    groups = Groups.of(picked(host_ops, rows, keys), keys, with_absent=True)
    texts = [with_shapes(name, shapes) for name, shapes in zip(*groups.keys.values(), strict=True)]
    return _names(texts, groups.of_row)


def _names(texts: Sequence[str], rows: np.ndarray) -> pd.Categorical:
    """Texts, some of which may be alike, by their positions; none at -1."""
    codes, names = pd.factorize(np.array(texts, dtype=object))
    return pd.Categorical.from_codes(np.append(codes, NONE)[rows], categories=names)


@lru_cache(16_384)
def with_shapes(name: str, shapes: object) -> str:
    """`aten::mm of [8, 4] × [4, 2]`; of what is no product its first inputs of unlike shapes, empty ones aside."""
    try:
        told = json.loads(shapes) if isinstance(shapes, str) else []
    except ValueError:
        told = []
    known = [shape for shape in told if shape and isinstance(shape, list)] if isinstance(told, list) else []
    factors = [shape for shape in known if len(shape) > 1]
    if factors and _PRODUCT.search(name):
        return f"{name} of {' × '.join(map(str, factors))}"
    shown = list(dict.fromkeys(str(shape) for shape in known if 0 not in shape))[:3]
    return f"{name} of {', '.join(shown)}" if shown else str(name)


# Which thread tells what the host did in stretches of time.


def evidence_threads(
    trace: RankTrace, thread: int, starts: np.ndarray, launched: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Threads, the stretches of which each one tells, and which of the given stretches each of those lies in.

    That is the launching thread; of JAX, whose program only waits for its runtime's threads while those launch, they
    tell as long as they record something, and the program's own thread the rest.
    """
    program = idle.program_thread(trace)
    if program is None or program == thread:
        yield thread, starts, launched, np.arange(len(starts))
        return
    tables = (trace.api_calls, trace.host_ops, trace.ranges)
    recorded = Intervals.of(*(
        np.concatenate([array_of(table, name)[array_of(table, "thread") == thread] for table in tables])
        for name in ("start_ns", "end_ns")
    ))  # fmt: skip
    rest = Intervals.of([int(starts.min())], [int(launched.max())]) - recorded
    for one, told in ((thread, recorded), (program, rest)):
        held, stretch = overlapping(starts, launched, told)
        since, until = np.maximum(told.starts[stretch], starts[held]), np.minimum(told.ends[stretch], launched[held])
        yield one, since, until, held


# What each step of a rank consists of by name, part by part: to say what is longer than on its peers.


OPERATOR, KERNEL, COPY, DOING, RANGE, SLICE = "operator", "kernel", "copy", "doing", "range", "slice"
"""What a name is of, best first within a part: an operator with its shapes, a kernel; what the host did, its range; the
time that another process has the GPU."""

OTHER_PROCESS = "another process"
"""The name of such time (`taken_of`)."""

MEMORY_CALLS = "calls for GPU memory"
COMPILING = "compiling by "
"""What stands for `cudaMalloc`, `cudaFree` and their like: an allocator that takes memory anew runs both in turn."""

WHAT_RAN_COLUMNS = ("step", "part", "what", "name", "total_ns", "calls", "work")

_SUMS = ("total_ns", "calls", "work")
_TEXTS = dict.fromkeys(("part", "what", "name"), "str")

_WORK = 2**40 - 1
"""So much is kept of the sum of works' numbers: sums over many steps are whole as floats, too."""

MOST_NAMES = 100
"""The longest that are kept of each kind: one that is not among so many takes no longer than the last of them."""

_DOINGS = sorted(cause.column for cause in (SYNC, *NAMED_CAUSES, HOST))
"""Parts of idle time that say what the host did."""


class WhatRan(Result):
    """One row for each rank, step, part of its time and name; the longest of each."""

    title = "What steps consist of, by name"
    is_detail = True
    keys = ("rank", "step", "part", "what", "name")
    columns = declared(
        rank="Global rank.",
        step="Step that launched it; absent without steps.",
        part="Part of the rank's time as `step_needs` has it: of idle time, what the host did before the launch.",
        what="operator (with its shapes), kernel, copy; slice (of kernels' time which another process "
        "has the GPU); of idle time doing (the innermost call, operator, range or "
        "Python frame); range (the user's innermost range, of kernels that around their launch).",
        name="Its name.",
        total_ns="Summed durations; of idle time only what lies in it.",
        calls=Column.count("How many operations; 0 of what hosts do."),
        work=Column.ident(
            "What they do, as a number: rows of one name whose calls and numbers are alike did the same work "
            "(operators, shapes, element types, grids and blocks, as far as they are recorded); 0 of what hosts do."
        ),
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        step = table["step"].astype("Int64")
        return self._with(table, {"step": step.where(step != NONE)})


def what_ran_per_rank(
    trace: RankTrace, tree: OperatorTree, same_work: np.ndarray, parts_of_steps: pd.DataFrame, doings: pd.DataFrame
) -> pd.DataFrame:
    """The longest names of each step and part."""
    each = () if parts_of_steps.empty else (_longest(_on_gpu(trace, tree, same_work), parts_of_steps), doings)
    tables = [table for table in each if len(table)]  # what has no rows has no types
    return sorted_by(under_each_other(tables), "total_ns") if tables else without_rows(WHAT_RAN_COLUMNS)


def longest_doings(trace: RankTrace, parts_of_steps: pd.DataFrame) -> pd.DataFrame:
    """The longest that the host did in the idle time of each step, before launches."""
    return _longest(() if parts_of_steps.empty else _on_host(trace, parts_of_steps), parts_of_steps)


def what_ran_across(parts: Mapping[int, pd.DataFrame]) -> WhatRan:
    """The ranks' rows under each other."""
    return WhatRan(stack(parts, tuple(WhatRan.columns)))


def _longest(parts: Iterable[dict[str, np.ndarray]], windows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `WhatRan`: of each step, part and kind of name the longest."""
    held = [*parts]
    if not held:
        return without_rows(WHAT_RAN_COLUMNS)
    table = {name: np.concatenate([own[name] for own in held]) for name in WHAT_RAN_COLUMNS}
    is_held = np.isin(table["step"], array_of(windows, "step"))
    table = {name: values[is_held] for name, values in table.items()}
    # Several threads may do the same.
    same = Groups.of(table, ("step", "part", "what", "name"), by_appearance=True)
    sums = same.table(**{name: same.sums(table[name]) for name in _SUMS}).astype(_TEXTS)
    sums = sorted_by(rows_where(sums, array_of(sums, "total_ns") > 0), "total_ns")
    return picked(sums, number_in_group(Groups.of(sums, ("step", "part", "what")).of_row) < MOST_NAMES)


def _on_gpu(trace: RankTrace, tree: OperatorTree, same_work: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    ops = trace.gpu_ops
    numbers = np.append(array_of(trace.steps, "step"), NONE)
    step = numbers[trace.op_step] if len(trace.steps) else np.full(len(ops), NONE)
    total_ns = array_of(ops, "end_ns") - array_of(ops, "start_ns")
    names = column_of(ops, "name")
    is_compute, is_copy = rows_named(ops, "kind", "compute"), rows_named(ops, "kind", "copy")
    for held, part, what in ((is_compute, "compute_ns", KERNEL), (is_copy, "exposed_copy_ns", COPY)):
        rows = np.flatnonzero(held)
        yield _summed(step[rows], names.take(rows), total_ns[rows], part, what, same_work[rows])
    rows = np.flatnonzero(is_compute)
    taken_ns = taken_of(ops, rows, step[rows], same_work[rows])
    taken = rows[taken_ns > 0]
    others = _names([OTHER_PROCESS], np.zeros(len(taken), dtype=np.int64))
    yield _summed(step[taken], others, taken_ns[taken_ns > 0], "compute_ns", SLICE)
    owned = np.flatnonzero(is_compute & (tree.owner >= 0))
    owners, owner = np.unique(tree.owner[owned], return_inverse=True)
    operators = called(trace.host_ops, owners).take(owner)
    yield _summed(step[owned], operators, total_ns[owned], "compute_ns", OPERATOR, same_work[owned])
    if len(trace.ranges):
        rows = np.flatnonzero(is_compute)
        inside = _range_of_launch(trace, array_of(ops, "launch")[rows])
        ranges, is_named = _named_ranges(trace, inside)
        rows = rows[is_named]
        yield _summed(step[rows], ranges[is_named], total_ns[rows], "compute_ns", RANGE)


def _range_of_launch(trace: RankTrace, launch: np.ndarray) -> np.ndarray:
    """Row of the user's innermost range around each launch; -1 where there is none."""
    threads = thread_of_launch(trace, launch)
    starts = np.append(array_of(trace.api_calls, "start_ns"), NONE)[launch]
    return range_around(trace.ranges, threads, starts)


def _named_ranges(trace: RankTrace, rows: np.ndarray) -> tuple[pd.Categorical, np.ndarray]:
    """Names of ranges by row, and which say something: a step's own range does not."""
    of_steps, names = _step_names(trace), column_of(trace.ranges, "name")
    texts = names.categories.tolist()
    codes = np.append(names.codes, NONE)[rows]
    return _names(texts, codes), np.array([*(name not in of_steps for name in texts), False])[codes]


def _step_names(trace: RankTrace) -> set[str]:
    names: Any = column_of(trace.steps, "name")
    return {names.categories[code] for code in {*names.codes.tolist()} - {NONE}}


def _on_host(trace: RankTrace, windows: pd.DataFrame) -> Iterator[dict[str, np.ndarray]]:
    """What the launching thread did between a gap's start and the launch that ends it."""
    gaps, of_gap = step_gaps(trace, windows)
    starts = np.maximum(gaps.starts, array_of(windows, "begin_ns")[of_gap])
    launched = np.minimum(gaps.launched, array_of(windows, "end_ns")[of_gap])
    threads = thread_of_launch(trace, gaps.launch)
    is_held = (threads != NONE) & (launched > starts) & (gaps.lengths >= SHORT_NS)
    numbers = array_of(windows, "step")
    has_data = bool((_named_parts(trace.host_ops) != NONE).any())
    nested = Nesting.of(trace.ranges), Nesting.of(trace.host_ops) if has_data else None
    for thread in np.unique(threads[is_held]):
        rows = np.flatnonzero(is_held & (threads == thread))
        for one, since, until, held in evidence_threads(trace, int(thread), starts[rows], launched[rows]):
            yield from _of_thread(trace, nested, one, since, until, numbers[of_gap[rows[held]]])


def _of_thread(
    trace: RankTrace,
    nested: tuple[Nesting, Nesting | None],
    thread: int,
    starts: np.ndarray,
    launched: np.ndarray,
    steps: np.ndarray,
) -> Iterator[dict[str, np.ndarray]]:
    ranges, operators = nested
    of_ranges, of_operators = map(_named_parts, (trace.ranges, trace.host_ops))
    for held, activity in activity_of(trace, thread, starts, launched, has_frames=True):
        query, stretch = overlapping(starts[held], launched[held], Intervals(activity.starts, activity.ends))
        since = np.maximum(activity.starts[stretch], starts[held][query])
        shared = np.minimum(activity.ends[stretch], launched[held][query]) - since
        middle = since + shared // 2
        on = np.full(len(middle), thread)
        inside = ranges.innermost_at(middle, on)
        named_part = of_ranges[inside]
        if operators is not None:
            named_part = np.where(named_part == NONE, of_operators[operators.innermost_at(middle, on)], named_part)
        part = _parts(activity, stretch, named_part)
        own_steps, (named, is_named) = steps[held][query], _named_ranges(trace, inside)
        doing = _with_others(trace, thread, activity, stretch, _doing(activity, stretch, _step_names(trace)))
        for number in np.unique(part).tolist():
            own_part, rows = _DOINGS[number], np.flatnonzero(part == number)
            if own_part != DATA.column:
                yield _summed(own_steps[rows], doing.take(rows), shared[rows], own_part, DOING)
            rows = rows[is_named[rows]]
            yield _summed(own_steps[rows], named.take(rows), shared[rows], own_part, RANGE)


def _parts(activity: Activity, stretch: np.ndarray, named: np.ndarray) -> np.ndarray:
    """Position in `_DOINGS` of what each of these stretches counts as; `named` is what its range or operator says."""
    is_sync = np.array([*map(host_names.is_sync, activity.names), False], dtype=bool)[activity.code[stretch]]
    places = [_DOINGS.index(cause.column) for cause in (SYNC, HOST)]
    return np.select([is_sync, named == NONE], places, named)


def _with_others(
    trace: RankTrace, thread: int, activity: Activity, stretch: np.ndarray, doing: pd.Categorical
) -> pd.Categorical:
    """What is done, where nothing is recorded with what another thread runs in Python meanwhile."""
    nothing = np.flatnonzero(doing == NOTHING)
    rows, row = np.unique(stretch[nothing], return_inverse=True)
    frames = cpu_time.beside(trace, thread, activity.starts[rows], activity.ends[rows])
    if all(frame is None for frame in frames):
        return doing
    told = np.array([NOTHING if frame is None else f"{cpu_time.BESIDE}{frame}" for frame in frames], dtype=object)
    found = doing.add_categories([*{*told} - {NOTHING}])
    found[nothing] = told[row]
    return found


def _named_parts(events: pd.DataFrame) -> np.ndarray:
    """Position in `_DOINGS` of the cause that each event's name says, -1 where it says none and at the end."""
    names: Any = column_of(events, "name")
    causes = [host_names.cause_of(name) for name in names.categories.tolist()]
    places = [_DOINGS.index(cause.column) if cause else NONE for cause in causes]
    parts: np.ndarray = np.array([*places, NONE])[np.append(names.codes, NONE)]
    return parts


def _doing(activity: Activity, stretch: np.ndarray, of_steps: set[str]) -> pd.Categorical:
    """What the innermost events of these stretches are called, `NOTHING` for those without one."""
    told, code = [_called_on_host(name, of_steps) for name in activity.names], activity.code[stretch]
    return _names([*told, NOTHING], np.where(code == NONE, len(told), code))


def _called_on_host(name: str, of_steps: set[str]) -> str:
    if name in of_steps:
        return NOTHING
    compiler = compiler_of(name)
    if compiler is not None:
        return COMPILING + compiler
    return MEMORY_CALLS if host_names.is_memory_call(name) else name


def _summed(
    step: np.ndarray,
    names: pd.Categorical,
    total_ns: np.ndarray,
    part: str,
    what: str,
    work: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Rows of `WhatRan`, one for each step and name; of what hosts do there are neither calls nor work."""
    groups = Groups.of({"step": step, "name": names})
    none = np.zeros(len(groups), dtype=np.int64)
    calls, works = (none, none) if work is None else (groups.counts(), groups.sums(work & _WORK) & _WORK)
    keys = {"step": groups.keys["step"], "name": texts_of(groups.keys["name"])}
    keys |= {name: np.full(len(groups), text, dtype=object) for name, text in (("part", part), ("what", what))}
    return keys | {"total_ns": groups.sums(total_ns), "calls": calls, "work": works}


SIZES = " of ["
"""What stands between an operator's name and the sizes of its inputs."""
