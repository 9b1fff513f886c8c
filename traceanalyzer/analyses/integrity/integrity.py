"""What of a capture cannot be trusted, and which figures it makes unreliable."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import Result, is_true, stack
from traceanalyzer.analyses.communication.calls import comm_operators
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.analyses.communication.matching import NOT_ON_ALL
from traceanalyzer.analyses.communication.waits import CallWaits
from traceanalyzer.analyses.grouping import sums_at
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.integrity import checks
from traceanalyzer.analyses.integrity.checks import (
    BACKWARDS,
    BY_KIND,
    EVENTS,
    FAR_APART,
    NESTED,
    NO_DURATION,
    OTHER_UNIT,
    OUT_OF_ORDER,
    OUTSIDE,
    SHARED,
    TOO_SHORT,
    TRUNCATED,
    UNREADABLE,
    Defect,
    have,
    many,
)
from traceanalyzer.analyses.kernels.kernel_names import category
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.kinds.kernels import function_path
from traceanalyzer.meaning.columns import Column, Written, time_text
from traceanalyzer.meaning.vocabulary import HIGH, INFO, LOW, MEDIUM, Severity, lacking, numbered
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE, UNNAMED
from traceanalyzer.model.tables import array_of, rows_named, rows_where, under_each_other
from traceanalyzer.selection import A_SAMPLE, is_lost_launch

DIFFERENT_JOBS = "different_jobs"
"""The check that finds that ranks do not belong together."""

_FEW = 0.5
"""Ranks of one capture answer more than this share of the calls that all of their ranks could answer."""

_BY_CHANCE = 0.1
"""Ranks of different jobs answer at most this share of each other's calls."""


def are_of_different_jobs(ranks: pd.DataFrame, call_waits: pd.DataFrame) -> bool:
    """No time in common, and calls of which no other rank answers any. The tables are the Results'."""
    if len(ranks) < 2 or not _share_no_time(ranks):
        return False
    calls, matched = _answerable(call_waits)
    return calls > 0 and not matched


def signs(ranks: pd.DataFrame, call_waits: pd.DataFrame) -> list[Defect]:
    """No time in common, and calls that no other rank answers; both together are no accident.

    Args:
        ranks: the Result's table.
        call_waits: the Result's table.
    """
    if len(ranks) < 2:
        return []
    calls, matched = _answerable(call_waits)
    unanswered = f"{calls - matched:,} of {calls:,} communication calls are not answered by all ranks of their group"
    affects = ("balance", "steps", "members")
    if are_of_different_jobs(ranks, call_waits):
        text = f"The ranks' captures share no time, and {unanswered}: these are ranks of different jobs or captures."
        return [Defect(DIFFERENT_JOBS, HIGH, calls, calls, text, affects)]
    found = []
    if _share_no_time(ranks):
        # Matched calls may as well be others: alike at like distances, as in decoding.
        ambiguous = int((is_true(call_waits["is_matched"]) & is_true(call_waits["is_ambiguous"])).sum()) if calls else 0
        why = (
            "their calls do match, so that the clocks of the hosts are wrong by more than the captures are long."
            if calls and matched - ambiguous > _FEW * calls
            else "unless the hosts' clocks are wrong, these are not ranks of one capture."
        )
        text = f"The ranks' captures share no time: {why}"
        found.append(Defect("no_shared_time", MEDIUM, len(ranks), None, text, affects))
    if calls and matched <= _FEW * calls:
        formats = " and ".join(sorted(ranks["format"].dropna().unique()))
        so = (
            f"ranks' files are of several formats ({formats}), which name process groups otherwise; record all ranks "
            "with one tool"
            if " and " in formats
            else "these may be ranks of different jobs"
            if matched <= _BY_CHANCE * calls
            else "who waited in them, and how long, is not known"
        )
        text = f"{unanswered}, although these are here: {so}."
        found.append(Defect("unanswered_calls", MEDIUM, calls - matched, calls, text, affects))
    return found


def _answerable(calls: pd.DataFrame) -> tuple[int, int]:
    """Calls whose whole group is here, and those of them that were matched."""
    if calls.empty:
        return 0, 0
    matched = int(is_true(calls["is_matched"]).sum())
    return matched + int((calls["why_not_split"] == NOT_ON_ALL).sum()), matched


def _share_no_time(ranks: pd.DataFrame) -> bool:
    """Of captures: GPUs of one file may well run one after the other."""
    known = rows_where(ranks, ranks["window_start_ns"].notna())
    by_file = known.groupby("files")
    starts = by_file["window_start_ns"].min().astype("int64")
    ends = by_file["window_end_ns"].max().astype("int64")
    return len(starts) > 1 and bool(starts.max() >= ends.min()) and bool((ends > starts).all())


UNKNOWN = "unknown_communication"
NOWHERE = "no_communication"
_NONE_AT_ALL = "without_communication"

_NAMELESS = "kernels_without_name"

OF_SEVERAL_RANKS = (NOWHERE, _NONE_AT_ALL)
"""Checks that say nothing of a rank that is alone."""

UNKNOWN_KERNELS = (UNKNOWN, NOWHERE, _NAMELESS)
"""Checks that leave it open what of compute is communication: with them nothing can be called well."""

_GRAVE_PCT, _SOME_PCT = 10.0, 1.0
"""Of kernel time, from which unknown kernels are high, and medium."""

_MOST_NAMED = 5

_OF_OPERATORS = re.compile(
    r"^(?:at|at_cuda_detail|cub|thrust|cutlass|cublas\w*|cudnn|pytorch_flash|flash)::"
    r"|^(?:nvjet|triton_|Cijk_|sm\d+_xmma|cudnn_generated|implicit_convolve|(?:maxwell|volta|turing|ampere)_)"
)
"""Kernels of libraries that only compute, whoever launches them."""


def unknown_communication(trace: RankTrace) -> list[Defect]:
    """Compute kernels whose own name, or whose operator's, speaks of communication; the user's rules come first."""
    ops = trace.gpu_ops
    is_kernel = rows_named(ops, "kind", "compute") & rows_named(ops, "activity", "kernel")
    by_name = _by_name(ops, is_kernel)
    speaking = np.array([_speaks(trace, name) for name in by_name.index.tolist()], dtype=bool)
    found = by_name[(speaking | by_name.index.isin(_of_operators(trace, is_kernel))) & (by_name > 0)]
    if found.empty:
        return []
    share = 100.0 * float(found.sum()) / float(by_name.sum())
    is_one, is_own = len(found) == 1, bool(speaking.any())
    who = (
        "1 kernel is known by no rule and counts" if is_one else f"{len(found)} kernels are known by no rule and count"
    )
    if is_one:
        whose = "its name speaks" if is_own else "the name of its operator speaks"
    else:
        whose = "their names speak" if is_own else "the names of their operators speak"
    text = (
        f"{who} as compute ({share:.1f} % of its kernel time), though {whose} of communication: {_largest(found)}."
        f"{_streams(ops[is_kernel], found)} If {'it communicates' if is_one else 'they communicate'}, say "
        f"{_option(found)}."
    )
    return [Defect(UNKNOWN, _severity(share), len(found), len(by_name), text, BY_KIND)]


def _severity(share: float) -> Severity:
    """How grave it is that so many per cent of kernel time are of unknown kernels."""
    return HIGH if share >= _GRAVE_PCT else MEDIUM if share >= _SOME_PCT else LOW


def kernels_without_name(trace: RankTrace) -> list[Defect]:
    """Kernels whose names the file lacks: they count as compute, and may be anything."""
    is_kernel = rows_named(trace.gpu_ops, "activity", "kernel")
    by_name = _by_name(trace.gpu_ops, is_kernel)
    if not by_name.get(UNNAMED, 0):
        return []
    count = int((is_kernel & rows_named(trace.gpu_ops, "name", UNNAMED)).sum())
    share = 100.0 * float(by_name[UNNAMED]) / float(by_name.sum())
    text = (
        f"{many(count, 'kernel')} ({share:.1f} % of kernel time) {have(count)} no name in the file: counted as "
        "compute, though any may be communication. Record or export again."
    )
    return [Defect(_NAMELESS, _severity(share), count, None, text, BY_KIND)]


def no_communication(trace: RankTrace) -> list[Defect]:
    """A rank that runs nothing which is known as communication, on its GPU or its CPU; of a job of one that is well."""
    ops = trace.gpu_ops
    is_compute = rows_named(ops, "kind", "compute")
    communicates = rows_named(ops, "kind", "comm").any()
    communicates |= host_names.matches(trace.ranges["name"], host_names.is_cpu_collective).any()
    by_name = _by_name(ops, is_compute)
    if communicates or not is_compute.any() or any(kinds.is_fused(name) for name in by_name.index):
        return []
    others = by_name[[not _OF_OPERATORS.search(function_path(name)) for name in by_name.index]]
    if len(others):
        others = _likeliest_first(trace, others)
        text = (
            f"A job of several ranks, but nothing in the capture is known as communication: it has none here, or its "
            f"kernels have names that no rule knows and count as compute. Of those that no library of computing "
            f"kernels has, the likeliest first: {_largest(others)}. Name those that communicate, such as "
            f"{_option(others[:1])}."
        )
        return [Defect(NOWHERE, MEDIUM, 1, None, text, BY_KIND)]
    text = (
        "A job of several ranks, and no communication in the capture: all of its kernels are of libraries that only "
        "compute. Its steps exchange nothing (gradients accumulated without synchronising, its own part of the work), "
        "or that was not recorded."
    )
    return [Defect(_NONE_AT_ALL, LOW, 1, None, text, ())] if trace.meta.world_size is not None else []


def _likeliest_first(trace: RankTrace, by_name: pd.Series) -> pd.Series:
    """Kernels that speak of communication, that share no stream with matrix products, whose names tell no computing."""
    is_compute = rows_named(trace.gpu_ops, "kind", "compute")
    by_operator, kernels = _of_operators(trace, is_compute), trace.gpu_ops[is_compute]
    names = kernels["name"].astype("str")
    computes = {name: category(name, "compute", None) != "other" for name in names.unique()}
    beside = kernels["stream"].isin(kernels.loc[names.map(computes).to_numpy(dtype=bool), "stream"].unique())
    is_beside = beside.groupby(names).any()
    order = sorted(
        by_name.index,
        key=lambda name: (
            not _speaks(trace, name) and name not in by_operator, is_beside[name], computes[name], -by_name[name]
        ),
    )  # fmt: skip
    return by_name[order]


def fused_kernels(trace: RankTrace) -> list[Defect]:
    """Kernels that compute and communicate at once: compute, overlap and exposed communication leave theirs open."""
    by_name = _by_name(trace.gpu_ops, rows_named(trace.gpu_ops, "kind", "compute"))
    found = by_name[np.array([kinds.is_fused(name) for name in by_name.index], dtype=bool) & (by_name > 0)]
    if found.empty:
        return []
    share = 100.0 * float(found.sum()) / float(by_name.sum())
    text = (
        f"{share:.1f} % of compute kernel time is in kernels that compute and communicate at once: {_largest(found)}. "
        "They count as compute; how much of it is communication, and how much is hidden, is unknown."
    )
    return [Defect("fused_kernels", MEDIUM if share >= _SOME_PCT else LOW, len(found), len(by_name), text, BY_KIND)]


def kinds_without_match(trace: RankTrace) -> list[Defect]:
    """The user's rules that no operation's name fits."""
    if not trace.meta.kind_rules.extra:
        return []
    names = [str(name) for name in trace.gpu_ops["name"].unique()]
    texts = [
        f"--kernel-kind '{kind}={pattern.pattern}' fits no kernel or copy in the capture."
        for kind, pattern in trace.meta.kind_rules.extra
        if not any(pattern.search(name) for name in names)
    ]
    return [Defect(WITHOUT_MATCH, MEDIUM, 1, None, text, ()) for text in texts]


WITHOUT_MATCH = "kind_without_match"


def _by_name(ops: pd.DataFrame, held: np.ndarray) -> pd.Series:
    """Total time of each distinct name of these operations, longest first."""
    names: Any = ops["name"].array
    codes, durations = names.codes[held], (array_of(ops, "end_ns") - array_of(ops, "start_ns"))[held]
    total = sums_at(codes, durations, len(names.categories))
    occurs = np.flatnonzero(np.bincount(codes, minlength=len(total)))
    order = occurs[np.argsort(-total[occurs], kind="stable")]
    return pd.Series(total[order], index=names.categories[order].astype("str"))


def _speaks(trace: RankTrace, name: str) -> bool:
    is_ruled = any(pattern.search(name) for _, pattern in trace.meta.kind_rules.extra)
    return not is_ruled and kinds.speaks_of_communication(name)


def _of_operators(trace: RankTrace, is_kernel: np.ndarray) -> set[str]:
    """Names of compute kernels that communicating operators launch, of which none launches anything that is known.

    Those operators are of libraries, and what PyTorch puts around every collective, of whatever backend.
    """
    ops = trace.gpu_ops
    operator = comm_operators(
        trace, np.arange(len(ops)), lambda name: name == "record_param_comms" or kinds.is_comm_operator(name)
    )
    inside = np.flatnonzero(operator != NONE)
    of_op = trace.host_ops["name"].array.codes[operator[inside]]
    is_known = rows_named(ops, "kind", "comm") | host_names.matches(ops["name"], kinds.is_fused)
    without = inside[is_kernel[inside] & ~np.isin(of_op, of_op[is_known[inside]])]
    names = ops["name"].cat.categories[np.unique(ops["name"].array.codes[without])]
    ruled = [pattern for _, pattern in trace.meta.kind_rules.extra]
    return {
        name
        for name in names
        if not _OF_OPERATORS.search(function_path(name)) and not any(rule.search(name) for rule in ruled)
    }


def _largest(by_name: pd.Series) -> str:
    named = [f"{_short(name)} ({time_text(total)})" for name, total in by_name[:_MOST_NAMED].items()]
    return ", ".join(named) + (f" and {len(by_name) - _MOST_NAMED} more" if len(by_name) > _MOST_NAMED else "")


def _short(name: object) -> str:
    """The function's own name; what is longer than a line is cut."""
    path = "".join(sign for sign in function_path(str(name)) if sign.isprintable())
    return path if len(path) <= 80 else f"{path[:79]}…"


def _option(by_name: pd.Series) -> str:
    """The `--kernel-kind` line for the largest of them."""
    paths = [function_path(str(name)).rsplit("::", 1)[-1][:60] for name in by_name.index[:_MOST_NAMED]]
    pattern = "|".join(dict.fromkeys(map(re.escape, paths)))
    return f"--kernel-kind {shlex.quote(f'comm={pattern}')}"


def _streams(kernels: pd.DataFrame, found: pd.Series) -> str:
    """Names streams on which no other kernel runs."""
    is_found = kernels["name"].astype("str").isin(found.index)
    alone = is_found.groupby(kernels["stream"]).all()
    streams = [str(stream) for stream in alone.index[alone.to_numpy(dtype=bool)]]
    if not streams:
        return ""
    who = "It alone runs" if len(found) == 1 else "They alone run"
    return f" {who} on stream{'' if len(streams) == 1 else 's'} {', '.join(streams[:_MOST_NAMED])}."


def other_units(kernels: pd.DataFrame) -> dict[int, list[Defect]]:
    """Of ranks whose kernels take nearer to 1,000 times as long (or short) as the same ones of most than equally long.

    The table is the Result's.
    """
    computing = rows_where(kernels, ((kernels["kind"] == "compute") & (kernels["median_ns"] > 0)).to_numpy())
    lengths = computing.pivot_table(index="name", columns="rank", values="median_ns", observed=True)
    lengths = lengths[lengths.notna().sum(axis="columns") > 1]
    if lengths.empty:
        return {}
    usual = lengths.quantile(axis="columns", interpolation="lower")
    found = {}
    for rank, ratio in lengths.div(usual, axis="index").median().dropna().items():
        if round(np.log(ratio) / np.log(1_000)):
            how = (
                f"{ratio:,.0f} times as long as" if ratio > 1 else f"1/{1 / ratio:,.0f} of the time of the same kernels"
            )
            text = (
                f"Its kernels take {how} on other ranks: the times are in another unit than the file says (µs taken "
                "for ns, or ns for µs), and so are all that are shown."
            )
            found[int(rank)] = [Defect(OTHER_UNIT, HIGH, 1, None, text, (EVENTS,))]
    return found


def copies(ranks: pd.DataFrame, kernels: pd.DataFrame) -> list[Defect]:
    """Ranks whose operations are those of another rank, to the nanosecond. The tables are the Results'."""
    whole = ["window_start_ns", "window_end_ns", "operations"]
    alike = rows_where(ranks, (ranks.duplicated(whole, keep=False) & (ranks["operations"] >= A_SAMPLE)).to_numpy())
    same: dict[object, list[int]] = {}
    for rank, own in kernels[kernels["rank"].isin(alike["rank"])].groupby("rank"):
        told = own[["name", "calls", "total_ns", "min_ns", "max_ns"]].astype({"name": "str"}).sort_values("name")
        same.setdefault((*told.itertuples(index=False, name=None),), []).append(int(rank))
    found = []
    for those in same.values():
        if len(those) > 1:
            text = (
                f"{numbered('Rank', those)} have the same operations at the same times, to the nanosecond: one file is "
                "there under several ranks' numbers, and ranks are missing."
            )
            found.append(Defect("copies_of_a_rank", HIGH, len(those), len(ranks), text, (EVENTS,)))
    return found


_RECORDS_GPUS = {"kineto": "ProfilerActivity.CUDA", "nsys": "--trace=cuda,nvtx"}
"""What records GPU work, by a trace's format."""

_SEVERITIES = (HIGH, MEDIUM, LOW, INFO)

_COLUMNS = ("check", "severity", "count", "total", "sentence", "affects")


LEFT_OUT = "ranks_left_out"
"""The check that says that ranks were not asked for."""

MISSING_RANKS = "missing_ranks"
"""The check that says that ranks of the job have no trace."""


class Integrity(Result):
    """One row for each rank (absent: the whole set) and check that found something, gravest first; empty when clean."""

    title = "Integrity"
    keys = ("rank", "check")
    is_of_one_run = True
    columns = {
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


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """All checks of one rank."""
    if trace.gpu_ops.empty:
        what = _RECORDS_GPUS.get(trace.meta.format, "the profiler's tracing of GPUs")
        text = f"No GPU work was recorded: a CPU-only job, or recorded without {what}."
        if lost := int(is_lost_launch(trace.api_calls).sum()):
            text = (
                f"GPU records are lost: the CPU launched {many(lost, 'kernel')}, and none was recorded. "
                "The profiler lost them, or they ran outside the recorded time. Record again."
            )
        if host_names.matches(trace.host_ops["name"], lambda name: "::mps_" in name or "::_mps_" in name).any():
            text = "No GPU work was recorded: PyTorch's profiler leaves out Apple's GPU (MPS), where operators ran."
        return _table([Defect("no_gpu_operations", HIGH, 1, None, text, ("gpu_ops",))])
    return _table([*checks.arguments_of_calls(calls), *chain.from_iterable(check(trace) for check in _OF_A_RANK)])


_OF_A_RANK: tuple[Callable[[RankTrace], list[Defect]], ...] = (
    checks.file_damage, checks.far_apart, checks.outside, checks.dropped_events, checks.launches_without_operation,
    checks.lost_amid_others, checks.lost_graphs, checks.operations_without_launch, checks.shared_launches,
    checks.launches_out_of_order, checks.overlaps_on_a_stream, checks.nested_on_a_stream,
    checks.operations_without_duration, checks.too_short, checks.operations_before_their_launch, checks.partial_steps,
    checks.cuda_graphs, unknown_communication, no_communication, kernels_without_name, fused_kernels,
    kinds_without_match, checks.impossible_memory_levels,
)  # fmt: skip


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
    units = {rank: _table(found) for rank, found in other_units(kernels.table).items()}
    own = stack(parts, ("rank", *_COLUMNS))
    own = under_each_other([own, stack(units)]) if units else own
    is_cut = own["check"].isin([TRUNCATED, OTHER_UNIT]).any()  # calls that it lost are no sign of anything
    comparable = complete[complete["step"].isin(shared) & ~complete["rank"].isin(units)]
    of_set = [
        *_missing_ranks(ranks.table, wanted_ranks, run_world_size),
        *_different_world_size(ranks.table, run_world_size),
        *checks.impossible_bandwidths(collectives.to_frame()),
        *([] if is_cut else signs(ranks.table, call_waits.table)),
        *copies(ranks.table, kernels.table),
        *checks.shifted(call_waits.table),
        *_different_windows(ranks.table, integrity_common_pct, has_shared=has_shared),
        *_different_steps(steps.table, ranks.table, has_shared=has_shared),
        *_different_step_lengths(comparable, integrity_step_pct),
    ]
    here = 1 if ranks.is_one_process else len(parts)
    if (_world_size(ranks.table) or run_world_size or here) < 2:  # alone, it communicates with nobody
        own = rows_where(own, ~own["check"].isin(OF_SEVERAL_RANKS))
    is_rule = own["check"] == WITHOUT_MATCH
    of_set = [*of_set, *_rules_without_match(own[is_rule], len(parts))]
    own = rows_where(own, ~is_rule)
    frames = [frame.astype(_DTYPES) for frame in (_table(of_set).assign(rank=pd.NA), own) if len(frame)]
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


def _table(defects: Iterable[Defect]) -> pd.DataFrame:
    """Those that something has, a row each."""
    rows = [{**asdict(defect), "affects": ", ".join(defect.affects)} for defect in defects if defect.count]
    return pd.DataFrame(rows, columns=list(_COLUMNS)).astype({"total": "Int64"})


def _rules_without_match(rows: pd.DataFrame, ranks: int) -> list[Defect]:
    """Rules of the user's that fit nothing on any rank."""
    times = rows["sentence"].value_counts() if len(rows) else pd.Series(dtype="int64")
    texts = sorted(times.index[times == ranks])
    return [Defect(WITHOUT_MATCH, MEDIUM, len(texts), None, " ".join(texts), ())] if texts else []


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
    affects: tuple[str, ...] = ("balance", "members")
    be = "is" if len(ranks) == 1 else "are"
    of_these = "figures are its own" if len(ranks) == 1 else "figures over ranks are of these"
    of_these += ", and waits for other ranks are not separated from transfers."
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


IMPOSSIBLE: Mapping[str, str] = MappingProxyType(
    {
        NESTED: "operations run inside others of their stream, which runs one after the other",
        FAR_APART: "operations lie over a day apart",
        OUTSIDE: "operations lie outside of the recording",
        NO_DURATION: "operations take no time",
        TOO_SHORT: "kernels run for less time than any GPU needs",
        OTHER_UNIT: "times are in another unit than those of the other ranks",
        BACKWARDS: "events end before they start",
        UNREADABLE: "those of many events are no numbers, or none that can be",
    }
)
"""Checks that find times that cannot be, and what these are."""

NOT_THEIR_OWN: Mapping[str, str] = MappingProxyType(
    {
        SHARED: "operations share the numbers of their launches",
        OUT_OF_ORDER: "operations of one stream run in another order than they were launched in",
    }
)
"""Checks that find that it is not known which call launched what."""


def _grave(integrity: pd.DataFrame) -> list[tuple[str, int]]:
    """Check and rank of all that is so much."""
    rows = zip(*(integrity[name].tolist() for name in ("check", "severity", "rank")), strict=True)
    return [(check, int(rank)) for check, severity, rank in rows if severity == HIGH and not pd.isna(rank)]


def untrue_ranks(integrity: pd.DataFrame) -> dict[int, str]:
    """Of each rank whose times cannot be true, or whose operations are not known to be of which step, the first why."""
    checks, grave = {**IMPOSSIBLE, **NOT_THEIR_OWN}, sorted(_grave(integrity), key=lambda found: found[1])
    return {rank: what for check, what in reversed(checks.items()) for found, rank in grave if found == check}


def told(integrity: pd.DataFrame) -> str | None:
    """`what the file of rank 0 tells cannot be true: operations take no time`; `None` where none is damaged so much."""
    ranks = untrue_ranks(integrity)
    if not ranks:
        return None
    first, more = min(ranks), len(ranks) - 1
    whose = f"the files of rank {first} and {more} more tell" if more else f"the file of rank {first} tells"
    return f"what {whose} cannot be true: {ranks[first]}"
