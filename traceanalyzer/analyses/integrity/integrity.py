"""What is wrong with the traces, and which figures it makes unreliable."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, stack, typed
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.analyses.host.host_names import matches
from traceanalyzer.analyses.integrity import (
    across_ranks,
    argument_checks,
    different_jobs,
    figure_checks,
    step_numbers,
    time_checks,
)
from traceanalyzer.analyses.integrity import integrity_checks as checks
from traceanalyzer.analyses.integrity import unknown_communication as unknown
from traceanalyzer.analyses.integrity.integrity_checks import OTHER_UNIT, TRUNCATED, Defect, many
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.names import IntegrityColumn, SourceName
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.meaning.listed import lacking, numbered
from traceanalyzer.meaning.severities import HIGH, INFO, LOW, MEDIUM
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import rows_where, under_each_other, without_rows
from traceanalyzer.selection import is_lost_launch

_RECORDS_GPUS = {"kineto": "ProfilerActivity.CUDA, on the rank's own GPU,", "nsys": "--trace=cuda,nvtx"}
"""What records GPU work, by a trace's format."""

_SEVERITIES = (HIGH, MEDIUM, LOW, INFO)

_COLUMNS = ("check", "severity", "count", "total", "sentence", "affects")


LEFT_OUT = "ranks_left_out"
"""The check that says that ranks were not asked for."""

MISSING_RANKS = "missing_ranks"
"""The check that says that ranks of the job have no trace."""


class Integrity(Result[IntegrityColumn]):
    """One row for each rank (absent: the whole set) and check that found something, gravest first; empty when clean."""

    title: ClassVar[str] = "Integrity"
    keys: ClassVar[tuple[str, ...]] = ("rank", "check")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank; absent for what concerns the set of ranks."),
        "check": Column.text("What was looked for.", written=Written.OURS),
        "severity": Column.text(
            "high: figures are wrong or missing; medium: some of those shown first are; both mark what they "
            "affect. low: slightly, or only figures of the whole capture; info: know it."
        ),
        "count": Column.count("How many events, steps or ranks."),
        "total": Column.count("Of how many; absent where that says nothing.", is_compared=False),
        "sentence": Column.text("What it is."),
        "affects": Column.text(
            "Where it begins, by name: Results, what they share, tables of events, or all of these (events); `doubted` "
            "of the report names all Results that rest on them.",
            written=Written.OURS,
        ),
    }


def _is_of_apple(name: str) -> bool:
    return "::mps_" in name or "::_mps_" in name


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """All checks of one rank."""
    if trace.gpu_ops.empty:
        what = _RECORDS_GPUS.get(trace.meta.format, "the profiler's tracing of GPUs")
        text = f"No GPU work was recorded. Where there is any, {what} records it; a job on CPUs alone has none."
        if lost := int(is_lost_launch(trace.api_calls).sum()):
            text = (
                f"The host launched {many(lost, 'kernel')}, and none was recorded: the profiler lost the GPU's "
                "records, or they lay outside the time that it recorded. Record again."
            )
        if matches(trace.host_ops["name"], _is_of_apple).any():
            text = "No GPU work was recorded: operators ran on Apple's GPU (MPS), which PyTorch's profiler leaves out."
        return _table([Defect("no_gpu_operations", HIGH, 1, None, text, ("gpu_ops",))])
    return _table(
        [
            *checks.file_damage(trace),
            *time_checks.far_apart(trace),
            *time_checks.outside(trace),
            *checks.dropped_events(trace),
            *checks.launches_without_operation(trace),
            *checks.lost_amid_others(trace),
            *checks.lost_graphs(trace),
            *checks.operations_without_launch(trace),
            *checks.shared_launches(trace),
            *checks.launches_out_of_order(trace),
            *argument_checks.communication_without_arguments(calls),
            *argument_checks.arguments_of_operators(calls),
            *argument_checks.inferred_arguments(calls),
            *time_checks.overlaps_on_a_stream(trace),
            *time_checks.nested_on_a_stream(trace),
            *time_checks.operations_without_duration(trace),
            *time_checks.too_short(trace),
            *time_checks.operations_before_their_launch(trace),
            *checks.partial_steps(trace),
            *checks.cuda_graphs(trace),
            *unknown.unknown_communication(trace),
            *unknown.no_communication(trace),
            *unknown.kernels_without_name(trace),
            *unknown.fused_kernels(trace),
            *unknown.kinds_without_match(trace),
            *figure_checks.impossible_memory_levels(trace),
        ]
    )


def across(
    parts: Mapping[int, pd.DataFrame],
    ranks: Ranks,
    steps: Steps,
    call_waits: CallWaits,
    collectives: Collectives,
    kernels: Kernels,
    integrity_common_pct: float = 90,
    integrity_step_pct: float = 20,
    wanted_ranks: frozenset[int] | None = None,
    run_world_size: int | None = None,
) -> Integrity:
    """The ranks' defects, and those of the set: ranks that are missing, captures and steps that differ.

    `wanted_ranks` are those that were asked for: others are left out, not missing. `run_world_size` is what the run's
    own record says, of which ranks are missing where traces do not say of how many they are.
    """
    complete = complete_steps(steps.table)
    shared = shared_steps(complete, set(ranks.table["rank"]))
    has_shared = bool(shared)
    units = {rank: _table(found) for rank, found in across_ranks.other_units(kernels.table).items()}
    own = stack(parts, ("rank", *_COLUMNS))
    own = under_each_other([own, stack(units)]) if units else own
    is_cut = own["check"].isin([TRUNCATED, OTHER_UNIT]).any()  # calls that it lost are no sign of anything
    comparable = complete[complete["step"].isin(shared) & ~complete["rank"].isin(units)]
    of_set = [
        *_missing_ranks(ranks.table, wanted_ranks, run_world_size),
        *_different_world_size(ranks.table, run_world_size),
        *figure_checks.impossible_bandwidths(collectives.to_frame()),
        *([] if is_cut else different_jobs.signs(ranks.table, call_waits.table)),
        *across_ranks.copies(ranks.table, kernels.table),
        *step_numbers.shifted(call_waits.table),
        *_different_windows(ranks.table, integrity_common_pct, has_shared=has_shared),
        *_different_steps(steps.table, ranks.table, has_shared=has_shared),
        *_different_step_lengths(comparable, integrity_step_pct),
    ]
    here = 1 if ranks.is_one_process else len(parts)
    if (_world_size(ranks.table) or run_world_size or here) < 2:  # alone, it communicates with nobody
        own = rows_where(own, ~own["check"].isin(unknown.OF_SEVERAL_RANKS))
    is_rule = own["check"] == unknown.WITHOUT_MATCH
    of_set = [*of_set, *_rules_without_match(own[is_rule], len(parts))]
    own = rows_where(own, ~is_rule)
    frames = [typed(frame, _DTYPES) for frame in (_table(of_set).assign(rank=pd.NA), own) if len(frame)]
    table = under_each_other(frames) if frames else own
    grave = table["severity"].map({name: place for place, name in enumerate(_SEVERITIES)})
    return Integrity(
        table.assign(grave=grave).sort_values(["grave", "check", "rank"], kind="stable", ignore_index=True)
    )


def _different_step_lengths(shared: pd.DataFrame, least_pct: float) -> list[Defect]:
    """Ranks that exchange gradients take the same time for the same steps, to a few per cent in real captures."""
    lengths = shared.groupby("rank")["window_ns"].sum() if len(shared) else pd.Series(dtype="int64")
    if len(lengths) < 2 or 100 * (lengths.max() - lengths.min()) < least_pct * lengths.max():
        return []
    text = (
        f"The same steps are {100 * (1 - lengths.min() / lengths.max()):.0f} % shorter on rank {lengths.idxmin()} than "
        f"on rank {lengths.idxmax()}: operations that start ahead of their step's others (copies on a stream of their "
        "own) shift its window, one began the first step late, or the ranks do not work in step; compare their times "
        "with care."
    )
    return [Defect("different_step_lengths", MEDIUM, len(lengths), None, text, ("steps",))]


_DTYPES = {"rank": "Int64", "count": "int64", "total": "Int64"}


@cache
def _none() -> pd.DataFrame:
    return typed(without_rows(_COLUMNS), {"total": "Int64"})


def _table(defects: list[Defect]) -> pd.DataFrame:
    if not defects:
        return _none()
    rows = [{**asdict(defect), "affects": ", ".join(defect.affects)} for defect in defects]
    return typed(pd.DataFrame(rows, columns=list(_COLUMNS)), {"total": "Int64"})


def _rules_without_match(rows: pd.DataFrame, ranks: int) -> list[Defect]:
    """Rules of the user's that fit nothing on any rank."""
    times = rows["sentence"].value_counts() if len(rows) else pd.Series(dtype="int64")
    texts = sorted(times.index[times == ranks])
    return [Defect(unknown.WITHOUT_MATCH, MEDIUM, len(texts), None, " ".join(texts), ())] if texts else []


def _world_size(ranks: pd.DataFrame) -> int | None:
    """Ranks of the job, as the traces say."""
    sizes = ranks["world_size"].dropna() if len(ranks) else pd.Series(dtype="Int64")
    return None if sizes.empty else int(sizes.max())


def _different_world_size(ranks: pd.DataFrame, told: int | None) -> list[Defect]:
    size = _world_size(ranks)
    if told is None or size is None or told == size:
        return []
    text = (
        f"run.json says that the job has {many(told, 'rank')}, the traces say {size:,}: it is another run's, or wrong; "
        "what is taken from it (the model, its work and memory, speed without a profiler) may not be this job's."
    )
    return [Defect("different_world_size", MEDIUM, told, size, text, ("mfu", "memory", "memory_fit", "balance"))]


def _missing_ranks(ranks: pd.DataFrame, wanted: frozenset[int] | None, told: int | None) -> list[Defect]:
    if not len(ranks):
        return []
    size, here = _world_size(ranks) or told or 0, set(ranks["rank"])
    expected = range(size) if wanted is None else wanted
    count = len(expected) - sum(rank in expected for rank in here)
    affects: tuple[SourceName, ...] = ("balance", "members")
    be = "is" if len(ranks) == 1 else "are"
    of_these = "figures are its own" if len(ranks) == 1 else "figures over ranks are of these"
    of_these += ", and waits for the others cannot be told from transfers."
    if count > 0:
        others = sorted(rank for rank in here if rank not in expected)
        of = f"the job's {size} ranks" if wanted is None else f"the {len(wanted)} ranks that --ranks asks for"
        be = "is" if len(ranks) - len(others) == 1 else "are"
        text = f"{len(ranks) - len(others)} of {of} {be} here (missing: {lacking(expected, here)}): {of_these}"
        if others:
            text += f" Files are of {numbered('rank', others)}: their numbers, or the size that they tell, are wrong."
        return [Defect(MISSING_RANKS, MEDIUM, count, len(expected), text, affects)]
    if len(ranks) < size:
        text = f"{len(ranks)} of the job's {size} ranks {be} looked at (--ranks): {of_these}"
        return [Defect(LEFT_OUT, MEDIUM, size - len(ranks), size, text, affects)]
    return []


def _different_windows(ranks: pd.DataFrame, common_pct: float, *, has_shared: bool) -> list[Defect]:
    """Compares by the hosts' clocks, which may differ by milliseconds between hosts.

    Headlines are of the steps that all ranks share; without any they are of those different windows.
    """
    known = ranks[ranks["window_start_ns"].notna()] if len(ranks) else ranks
    if len(known) < 2:
        return []
    starts = known["window_start_ns"].astype("int64")
    ends = known["window_end_ns"].astype("int64")
    common, longest = max(int(ends.min() - starts.max()), 0), int((ends - starts).max())
    if not longest or not common or 100 * common >= common_pct * longest:
        return []
    advice = (
        "compare ranks by the steps that they share, not by whole captures"
        if has_shared
        else "figures of whole captures are of different times; record the same steps on every rank, and mark them"
    )
    text = (
        f"The ranks' captures share {100 * common / longest:.0f} % of the longest one's time, by their hosts' clocks: "
        f"{advice}."
    )
    severity = LOW if has_shared else MEDIUM
    return [Defect("different_windows", severity, len(known), None, text, ("breakdown", "overlap", "nccl", "kernels"))]


def _different_steps(steps: pd.DataFrame, ranks: pd.DataFrame, *, has_shared: bool) -> list[Defect]:
    marked = rows_where(steps, steps["step"].notna()) if len(steps) else steps
    if marked.empty:
        return []
    holders = marked.groupby("step")["rank"].nunique()
    uncommon = holders.index[holders < len(ranks)]
    if not len(uncommon):
        return []
    text = f"{len(uncommon)} of {len(holders)} steps are not in every rank's capture: "
    if has_shared:
        text += "the headline is of those that are."
        return [Defect("different_steps", LOW, len(uncommon), len(holders), text, ("steps",))]
    text += "no complete one is, so that the headline is of whole captures."
    unmarked = sorted({*ranks["rank"].astype(int)} - {*marked["rank"].astype(int)})
    if unmarked:
        mark = "marks" if len(unmarked) == 1 else "mark"
        text += f" {numbered('Rank', unmarked)} {mark} none: call the profiler's step() on every rank."
    return [Defect("different_steps", MEDIUM, len(uncommon), len(holders), text, ("steps",))]
