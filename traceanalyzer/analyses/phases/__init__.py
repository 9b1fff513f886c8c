"""Training phases of each GPU operation and of each rank's time; communication by phase and collective."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import (
    CALL,
    COLLECTIVE,
    GROUP_IF_KNOWN,
    GROUP_LABEL,
    INNERMOST_RANGE,
    RANK,
    Result,
    stack,
)
from traceanalyzer.analyses.breakdown import (
    PARTS,
    Breakdown,
    Headline,
    OfKnownWork,
    Steps,
    by_rank,
    known_only,
    steps_of,
)
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.collectives import summed
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.waits import CallWaits, listed, looked_at, transfer_and_wait
from traceanalyzer.analyses.host import host_names, idle
from traceanalyzer.analyses.host.activity import names_around_launches, range_around, user_ranges
from traceanalyzer.analyses.host.host_names import PHASES, UNATTRIBUTED
from traceanalyzer.analyses.intervals import EMPTY, Intervals, unions
from traceanalyzer.analyses.operators.operator_tree import last_of_each_number
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.kinds import KINDS
from traceanalyzer.meaning.columns import Better, Column, declared
from traceanalyzer.meaning.vocabulary import COMM_PARTS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    nowhere,
    nullable,
    picked,
    rows_named,
    rows_named_so,
    sorted_by,
    table_of,
    under_each_other,
    whole_of,
    with_columns,
)

# Which phase of training launched each GPU operation: forward, backward, optimizer, data, communication.


NAMES = (*PHASES, UNATTRIBUTED)

PHASE_NAMES = np.array(NAMES, dtype=object)
"""The same, to be picked from by positions."""

OP_PHASES_UNKNOWN = len(PHASES)
"""Position of an operation that nothing attributes."""

_TIMES = ("start_ns", "end_ns", "thread")

FORWARD, BACKWARD = PHASES.index("forward"), PHASES.index("backward")


def op_phases(trace: RankTrace) -> np.ndarray:
    """For each GPU operation the position of its phase in `NAMES`.

    The first of these that speaks decides:

    1. the innermost range named after a phase, or autograd node, around the launch on its thread; a forward range
       inside a node is recomputation, hence backward;
    2. the innermost phase range of another thread at that time: the main thread's `backward` around autograd's;
    3. forward, when an operator around the launch made a node that the backward pass of the capture ran.

    Otherwise, and without a recorded launch, the operation is unattributed.
    """
    phase = np.full(len(trace.gpu_ops), OP_PHASES_UNKNOWN, dtype=np.int64)
    launch = trace.launch
    has_launch = launch != NONE
    if has_launch.any():
        calls, back = np.unique(launch[has_launch], return_inverse=True)
        threads, times = arrays_of(trace.api_calls, "thread", "start_ns", rows=calls)
        phase[has_launch] = phases_of_moments(trace, threads, times)[back]
    return phase


def phases_of_moments(trace: RankTrace, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The same for moments on the host, each with its thread."""
    named = _phase_ranges(trace)
    phase = _of_own_thread(trace, named, threads, times)
    open_calls = np.flatnonzero(phase == OP_PHASES_UNKNOWN)
    around = range_around(named.assign(thread=0), np.zeros(len(open_calls), dtype=np.int64), times[open_calls])
    codes = np.append(array_of(named, "phase"), OP_PHASES_UNKNOWN)
    phase[open_calls] = codes[around]
    open_calls = np.flatnonzero(phase == OP_PHASES_UNKNOWN)
    is_forward = range_around(_forward_operators(trace), threads[open_calls], times[open_calls]) != NONE
    phase[open_calls[is_forward]] = FORWARD
    return phase


def _phase_ranges(trace: RankTrace) -> pd.DataFrame:
    """Ranges (and the loader's operator, which older versions record as one) that name a phase."""
    frames = [_named(frame) for frame in (trace.ranges, trace.host_ops)]
    return under_each_other(frames)


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    names = frame["name"].array
    known = [_code(name) if "::" not in name or name.startswith("FSDP") else OP_PHASES_UNKNOWN
             for name in names.categories.tolist()]  # fmt: skip
    phase = np.array([*known, OP_PHASES_UNKNOWN], dtype=np.int64)[names.codes]
    held = np.flatnonzero(phase != OP_PHASES_UNKNOWN)
    return with_columns(picked(frame, held, _TIMES), phase=phase[held])


def _code(name: str) -> int:
    phase = host_names.phase(name)
    return OP_PHASES_UNKNOWN if phase is None else PHASES.index(phase)


def _of_own_thread(trace: RankTrace, named: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    is_node = rows_named_so(trace.host_ops, host_names.is_autograd_node)
    nodes = with_columns(picked(trace.host_ops, is_node, _TIMES), phase=BACKWARD)
    events = under_each_other([named, nodes])
    codes = np.append(array_of(events, "phase"), OP_PHASES_UNKNOWN)
    phase = codes[range_around(events, threads, times)]
    in_node = range_around(nodes, threads, times) != NONE
    return np.where(in_node & (phase == FORWARD), BACKWARD, phase)


def _forward_operators(trace: RankTrace) -> pd.DataFrame:
    """Operators that made a node which autograd ran.

    Every operator notes the number that the next node will get, whether it makes one or not; the last one that
    notes a number made its node.
    """
    ops = trace.host_ops
    has_sequence = ops["sequence"].notna().to_numpy()
    is_autograds = whole_of(ops, "forward_thread", 0) != 0
    # Plain collectives make none, and come last where gradients are reduced after the backward pass.
    is_collective = rows_named_so(ops, lambda name: name.startswith("c10d::"))
    rows = np.flatnonzero(has_sequence & ~is_autograds & ~is_collective)
    sequence = whole_of(ops, "sequence")
    makers = np.sort(last_of_each_number(rows, sequence, array_of(ops, "thread")))
    run = sequence[has_sequence & is_autograds]
    return picked(ops, makers[np.isin(sequence[makers], run)], _TIMES)


# Which communication call, and which phase, each stretch of exposed communication belongs to.


EXPOSED_CALLS_PARTS = ("transfer_ns", "wait_ns", "unmatched_ns")
"""Columns that add up to a stretch's length."""


class ExposedCalls(Result):
    """One row for each stretch in which communication but no compute runs, cut by call and at the steps' limits."""

    title = "Exposed communication by call"
    is_detail = True
    keys = ("rank", "stretch")
    columns = declared(
        rank=RANK,
        stretch=Column.ident("Position among the rank's stretches."),
        call=(
            "The call that it belongs to: of those that run, the one that started first. Absent for one that was "
            "launched outside the chosen steps and still runs in their window."
        ),
        step="Step in whose GPU window it lies; absent for none.",
        start_ns="Its start.",
        end_ns="Its end.",
        transfer_ns=Column.time("Time in it in which one of the rank's calls moves data.", is_news_when_zero=True),
        wait_ns="Time in it in which a call waits for another rank and none moves data.",
        unmatched_ns="The remainder.",
    )


def exposed_calls_per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """The rank's exposed communication inside its window."""
    owned, owner = first_started(trace, "comm")
    if not len(owner):
        return pd.DataFrame()
    has_window = trace.steps["start_ns"].notna().to_numpy()
    limits = [whole_of(trace.steps, name)[has_window] for name in ("start_ns", "end_ns")]
    exposed = unions(trace)["comm"] - unions(trace)["compute"]
    # Between two neighbouring edges nothing changes: neither call, nor step, nor whether it is exposed.
    edges = np.unique(
        np.concatenate(
            [owned.starts, owned.ends, exposed.starts, exposed.ends, trace.window.starts, trace.window.ends, *limits]
        )
    )
    starts, ends = edges[:-1], edges[1:]
    held = (exposed.covered_ns(starts, ends) > 0) & trace.window.holds(starts)
    starts, ends = starts[held], ends[held]
    row = owner[np.searchsorted(owned.starts, starts, side="right") - 1]
    columns = {"call": _numbers(trace, calls, row), "start_ns": starts, "end_ns": ends}
    return table_of(columns | {"stretch": np.arange(len(starts)), "step": idle.step_of_time(trace, starts)})


def first_started(trace: RankTrace, kind: str) -> tuple[Intervals, np.ndarray]:
    """When an operation of the kind runs, and the row of `gpu_ops` to which each stretch of it belongs.

    Of several it is the one that started first, and of those ends first.
    """
    rows = np.flatnonzero(rows_named(trace.gpu_ops, "kind", kind))
    starts, ends = arrays_of(trace.gpu_ops, "start_ns", "end_ns", rows=rows)
    since = np.maximum(starts, np.append(starts[:1], np.maximum.accumulate(ends)[:-1]))
    held = ends > since
    return Intervals(since[held], ends[held]), rows[held]


def exposed_calls_across(parts: Mapping[int, pd.DataFrame], call_waits: CallWaits) -> ExposedCalls:
    """Split each stretch in the order transfer, wait, remainder."""
    table = stack(parts, tuple(ExposedCalls.columns))
    return ExposedCalls(by_rank(_split, table, call_waits.table) if len(table) else table)


def _numbers(trace: RankTrace, calls: pd.DataFrame, row: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """The calls' numbers of rows of `gpu_ops`; absent for operations that are none of the chosen steps' calls."""
    numbers = nowhere(len(trace.gpu_ops))
    if not calls.empty:
        numbers[array_of(calls, "gpu_op")] = array_of(calls, "call")
    return nullable(numbers[row], numbers[row] == NONE)


def _split(stretches: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    starts, ends = array_of(stretches, "start_ns"), array_of(stretches, "end_ns")
    transfer, wait = transfer_and_wait(Intervals.of(starts, ends), calls)
    moving, waiting = transfer.covered_ns(starts, ends), wait.covered_ns(starts, ends)
    rest = ends - starts - moving - waiting
    return with_columns(stretches, transfer_ns=moving, wait_ns=waiting, unmatched_ns=rest)


# What that is in each rank's window and in each step.


class ExposedComm(OfKnownWork):
    """One row for each rank's whole window (`step` absent) and for each step; the parts add up, exactly."""

    title = "Exposed communication: transfer and wait"
    keys = ("rank", "step")
    derived = {part.share: f"{part.column} / window_ns" for part in COMM_PARTS}
    hidden = tuple(part.column for part in COMM_PARTS)
    columns = declared(
        rank=RANK,
        step="Step; absent for the rank's whole window.",
        is_complete="Neither open nor partial: counts in means. Absent for the whole window.",
        window_ns="Length of the step's GPU window, or of the rank's.",
        exposed_comm_ns="Time in which communication but no compute runs: |∪comm − ∪compute|.",
        exposed_transfer_ns=Column.lost("Part in which data moves: |∪transfer − ∪compute|."),
        exposed_wait_ns="Part in which a call waits for another rank and none moves data: |∪wait − ∪compute − "
        "∪transfer|.",
        exposed_unmatched_ns=Column.spent(
            "The remainder: calls without a known instance, what follows the last rank of a group of which another has "
            "no trace, collectives with one root, uneven all-to-alls, peer-to-peer copies."
        ),
        exposed_transfer_pct="100 · exposed transfer / window.",
        exposed_wait_pct="100 · exposed wait / window.",
        exposed_unmatched_pct="100 · exposed unmatched / window.",
    )


def exposed_comm_across(exposed_calls: ExposedCalls, breakdown: Breakdown, steps: Steps) -> ExposedComm:
    """Add up the stretches of each window and of each step."""
    keys, names = ["rank", "step"], ["is_complete", "window_ns", "exposed_comm_ns", "opaque_ns"]
    types = {"step": "Int64", "is_complete": "boolean", **dict.fromkeys(names[1:], "int64")}
    own = steps.table[steps.table["start_ns"].notna()]
    windows = [table.reindex(columns=[*keys, *names]).astype(types) for table in (breakdown.table, own) if len(table)]
    if not windows:
        return ExposedComm.without_rows()
    stretches = exposed_calls.table[[*keys, *EXPOSED_CALLS_PARTS]].astype({"rank": "int64", "step": "Int64"})
    every = pd.concat([stretches.assign(step=pd.NA).astype({"step": "Int64"}), stretches[stretches["step"].notna()]])
    sums = every.groupby(keys, dropna=False)[list(EXPOSED_CALLS_PARTS)].sum().set_axis(ExposedComm.hidden, axis=1)
    table = pd.concat(windows).sort_values(keys, na_position="first").merge(sums.reset_index(), on=keys, how="left")
    parts = table[[*ExposedComm.hidden]].fillna(0).astype("int64")
    assert (parts.sum(axis=1) == table["exposed_comm_ns"]).all(), "parts must add up to exposed comm"
    return ExposedComm(table.assign(**parts))


# How each rank's GPU time splits into forward, backward, optimizer, data and communication set-up.


class Phases(Result):
    """One row for each rank, window (`step` absent: the whole) and phase; the rows of a window add up to it."""

    title = "Phases"
    keys = ("rank", "step", "phase")
    stored = ("window_ns",)
    derived = {"share_pct": "total_ns / window_ns"}
    columns = declared(
        rank=RANK,
        step="Step; absent for the whole window.",
        phase=(
            "Phase in which the host launched the operation that the time belongs to; unattributed when neither "
            "the user's ranges nor autograd tell."
        ),
        total_ns="Time of the window that belongs to the phase: the sum of its parts.",
        compute_ns="Compute. Of kernels that run together the first to start counts.",
        exposed_comm_ns="Communication while no compute runs.",
        exposed_copy_ns=Column.spent("Copies while neither runs."),
        opaque_ns="CUDA graphs recorded whole, while nothing else runs. Of their window the parts above are n/a.",
        idle_ns="Idle time before an operation of the phase.",
        operations="GPU operations of the phase that start in the window.",
        share_pct="100 · total / window.",
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        total = table[list(PARTS)].sum(axis=1).astype("int64")
        unknown = table.groupby(["rank", "step"], dropna=False)["opaque_ns"].transform("sum")
        return super()._derived(known_only(table, (), unknown).assign(total_ns=total))


def phases_per_rank(trace: RankTrace, steps: pd.DataFrame, phase_of_op: np.ndarray) -> pd.DataFrame:
    """Each window's parts by the phase that launched what they belong to; they add up to it.

    An instant belongs to a compute kernel if one runs, else to a communication operation, else to a copy, else to a
    CUDA graph of unknown content. Idle time belongs to the operation that ends the gap: the host had not launched it.
    Phases that hold no time and no operation are left out.
    """
    windows, gaps = idle.Windows.of(trace, steps), idle.find(trace)
    shape, columns, hidden = (len(windows.step), len(NAMES)), {}, EMPTY
    for part, kind in zip(PARTS, (*KINDS, None), strict=True):
        pieces, op = first_started(trace, kind) if kind else (Intervals(gaps.starts, gaps.ends), gaps.ended_by)
        own, piece, since, until = windows.holding(pieces)
        columns[part] = np.zeros(shape, dtype=np.int64)
        np.add.at(columns[part], (own, phase_of_op[op[piece]]), until - since - hidden.covered_ns(since, until))
        hidden |= pieces
    assert (sum(own.sum(axis=1) for own in columns.values()) == windows.length_ns).all(), "phases must add up"
    columns["operations"] = np.zeros(shape, dtype=np.int64)
    limits = np.searchsorted(array_of(trace.gpu_ops, "start_ns"), [windows.starts, windows.ends]).tolist()
    for own, first, past in zip(windows.row.tolist(), *limits, strict=True):
        columns["operations"][own] += np.bincount(phase_of_op[first:past], minlength=len(NAMES))
    at, phase = np.nonzero(np.any([*columns.values()], axis=0))
    table = {name: own[at, phase] for name, own in columns.items()}
    table |= {"phase": PHASE_NAMES[phase], "window_ns": windows.length_ns[at]}
    number = windows.step[at]
    return table_of({"step": nullable(number, number == NONE), **table})


# Phase, range and exposed time of each communication call.


class CallPhases(Result):
    """One row for each communication call, by the number that `calls` gives it."""

    title = "Phases of communication calls"
    is_detail = True
    keys = ("rank", "call")
    columns = declared(
        rank=RANK,
        call=CALL,
        phase="Phase in which the host launched it.",
        range=INNERMOST_RANGE,
    )


def call_phases_per_rank(trace: RankTrace, calls: pd.DataFrame, phase_of_op: np.ndarray) -> pd.DataFrame:
    """Phase and range of the rank's calls."""
    if calls.empty:
        return pd.DataFrame()
    rows = array_of(calls, "gpu_op")
    return table_of(
        {
            "call": array_of(calls, "call"),
            "phase": PHASE_NAMES[phase_of_op[rows]],
            "range": names_around_launches(user_ranges(trace), trace, trace.launch[rows]),
        }
    )


# Communication by phase, range and process group: which part of training communicates, how often, how exposed.


_COMM_PHASES_KEYS = ("rank", "phase", "range", "group", "collective")


class CommPhases(Result):
    """One row for each rank, phase, range, process group and collective."""

    title = "Communication by phase"
    keys = _COMM_PHASES_KEYS
    joined_by = ("phase", "collective")
    columns = declared(
        rank=RANK,
        phase="Phase in which the host launched it.",
        range="The user's innermost range around the launch; numbers in it are left out (`blocks.#`).",
        group=GROUP_IF_KNOWN,
        group_label=GROUP_LABEL,
        collective=COLLECTIVE,
        calls="Communication operations on the GPU.",
        size_bytes="Sum of their sizes (full arrays); n/a as long as the size of one is unknown.",
        total_ns=Column.time("Sum of their durations, waiting for other ranks included.", leads=True),
        exposed_ns="Part of the rank's exposed communication that belongs to them; the rows add up to it.",
        exposed_wait_ns="Part of that in which a call waits for another rank and none moves data.",
    )


def comm_phases_across(
    calls: Calls,
    call_phases: CallPhases,
    exposed_calls: ExposedCalls,
    groups: Groups,
) -> CommPhases:
    """Join the calls with their phases and add them up."""
    if not len(call_phases):
        return CommPhases.without_rows()
    keys = ["rank", "call"]
    made = calls.table[[*keys, "group", "collective", "size_bytes", "start_ns", "end_ns"]]
    table = call_phases.table.merge(made, on=keys).join(exposed_by_call(exposed_calls), on=keys)
    table = table.assign(
        range=without_numbers(table["range"]),
        total_ns=table["end_ns"] - table["start_ns"],
        exposed_ns=table["exposed_comm_ns"],
    )
    by_key = table.groupby(list(_COMM_PHASES_KEYS), dropna=False, sort=False, observed=True)
    times = by_key[["size_bytes", "total_ns", "exposed_ns", "exposed_wait_ns"]].sum()
    sizes = times["size_bytes"].astype("Int64").mask(by_key["size_bytes"].count() < by_key.size())
    summed = times.astype("int64").assign(size_bytes=sizes, calls=by_key.size()).reset_index()
    summed = summed.assign(group_label=labels(groups, summed))
    return CommPhases(
        summed.sort_values(["rank", "total_ns"], ascending=[True, False], kind="stable", ignore_index=True)
    )


def without_numbers(ranges: pd.Series) -> pd.Series:
    """Names of ranges with `#` for each number in them."""
    return ranges.astype("str").where(ranges.notna()).str.replace(r"\d+", "#", regex=True)


# What each collective does in a mean step: calls, bytes, where its time goes, and how fast it moves data.


_BY_COLLECTIVE_KEYS = ["collective", "group_label"]
_EXPOSED = ("exposed_comm_ns", "exposed_transfer_ns", "exposed_wait_ns", "not_separable_ns")


class ByCollective(Result):
    """One row for each collective and group, most exposed first: of a mean step of `headline`, or of the capture."""

    title = "Communication by collective, mean over ranks"
    keys = ("collective", "group_label")
    is_of_one_run = True
    derived = {"busbw_gbps": "bus_bytes / bus_ns", "peak_pct": "busbw_gbps / bus_peak_gbps"}
    columns = declared(
        collective=COLLECTIVE,
        group_label=Column.text(
            "Process group: what it is for, and its ranks.", label="process group", is_aside_when_one=True
        ),
        group_size="Ranks in the group.",
        dtype="Element types.",
        calls="Calls: mean over the ranks that make them.",
        size_bytes="Full arrays of these calls: mean likewise; n/a while the size of one is unknown.",
        total_ns="Sum of their durations: mean likewise.",
        exposed_comm_ns="Time in which such a call but no compute runs: mean likewise. The next columns are its parts.",
        exposed_transfer_ns=Column.lost("Of it, time in which data moves."),
        exposed_wait_ns="Of it, time in which the call waits for a later rank.",
        not_separable_ns=Column.time(
            "Of it, the remainder: unmatched calls, and those whose ranks do not wait alike.", label="unattributed"
        ),
        highest_exposed_ns="Largest exposed time of a rank.",
        highest_rank="Whose that is.",
        busbw_gbps=Column.rate(
            "Bus bandwidth while data moves, decimal GB/s: waits are not in it.", better=Better.MORE
        ),
        peak_pct=Column.share("100 · busbw / what the GPU's links carry in one direction.", better=Better.MORE),
    )


def by_collective_across(
    call_waits: CallWaits,
    calls: Calls,
    exposed_calls: ExposedCalls,
    groups: Groups,
    ranks: Ranks,
    headline: Headline,
    steps: Steps,
) -> ByCollective:
    """Add up each rank's calls, then take the mean over the ranks that make them."""
    chosen = steps_of(headline, steps)
    made = looked_at(call_waits, calls)
    made = made[made["step"].isin(chosen)] if chosen else made
    if made.empty:
        return ByCollective.without_rows()
    made = made.assign(group_label=labels(groups, made).astype("str"), total_ns=made["end_ns"] - made["start_ns"])
    made = made.join(exposed_by_call(exposed_calls, chosen), on=["rank", "call"]).fillna(dict.fromkeys(_EXPOSED, 0))
    by_rank = made.groupby([*_BY_COLLECTIVE_KEYS, "rank"], dropna=False, observed=True)
    by_key = made.groupby(_BY_COLLECTIVE_KEYS, dropna=False, observed=True)
    # What is not told apart is not known to be 0.
    is_told = by_rank["transfer_ns"].count() > 0
    sums = by_rank[["size_bytes", "total_ns", *_EXPOSED]].sum().astype("float64").assign(calls=by_rank.size())
    sums = sums.assign(**{name: sums[name].where(is_told) for name in ("exposed_transfer_ns", "exposed_wait_ns")})
    per_step = sums / (len(chosen) or 1)
    exposed = per_step["exposed_comm_ns"].groupby(_BY_COLLECTIVE_KEYS, dropna=False)
    table = per_step.groupby(_BY_COLLECTIVE_KEYS, dropna=False).mean()
    sizes = table["size_bytes"].astype("Float64").mask(by_key["size_bytes"].count() < by_key.size())
    table = table.assign(
        size_bytes=sizes,
        group_size=by_key["group_size"].max(),
        dtype=by_key["dtype"].agg(lambda own: listed(own.dropna().unique().tolist())),
        highest_exposed_ns=exposed.max(),
        highest_rank=[rank for *_, rank in exposed.idxmax()],
    )
    table = table.join(_rates(made, ranks, groups))
    return ByCollective(sorted_by(table.reset_index(), "exposed_comm_ns"))


def exposed_by_call(exposed_calls: ExposedCalls, steps: Sequence[int] = ()) -> pd.DataFrame:
    """Exposed time of each call, by `rank` and `call`, and its parts; with `steps` what of it lies in these."""
    stretches = exposed_calls.table
    stretches = stretches[stretches["step"].isin(steps)] if steps else stretches
    lengths = stretches["end_ns"] - stretches["start_ns"]
    times = dict(zip(_EXPOSED, (lengths, *(stretches[name] for name in EXPOSED_CALLS_PARTS)), strict=True))
    keys = ["rank", "call"]
    return stretches[keys].assign(**times).astype(dict.fromkeys(_EXPOSED, "int64")).groupby(keys).sum()


def _rates(calls: pd.DataFrame, ranks: Ranks, groups: Groups) -> pd.DataFrame:
    """What bus bandwidth is made of; rates of ranks and size classes count by their transfer."""
    known = summed(calls, ranks, groups).to_frame()
    known = known[known["busbw_gbps"].notna()]
    known = known.assign(bus_bytes=known["busbw_gbps"] * known["transfer_ns"])
    rows = known.groupby(_BY_COLLECTIVE_KEYS, dropna=False, observed=True)
    peaks = rows["link_peak_gbps"].first().where(rows["peak_pct"].count() > 0)
    return (
        rows[["bus_bytes", "transfer_ns"]].sum().rename(columns={"transfer_ns": "bus_ns"}).assign(bus_peak_gbps=peaks)
    )
