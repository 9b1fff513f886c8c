"""What of a capture cannot be trusted, and which figures it makes unreliable."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, is_true, stack
from traceanalyzer.analyses.breakdown import Steps, complete_steps, shared_steps
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.analyses.communication.matching import MOST, NOT_ON_ALL
from traceanalyzer.analyses.communication.waits import CallWaits
from traceanalyzer.analyses.host.host_names import is_mps_operator
from traceanalyzer.analyses.integrity import checks
from traceanalyzer.analyses.integrity.checks import OTHER_UNIT, SHIFTED, TRUNCATED, UNTRUE, Defect
from traceanalyzer.analyses.kernels import Kernels
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Column, Written, declared
from traceanalyzer.meaning.gpus import fastest_memory_gbps
from traceanalyzer.meaning.vocabulary import HIGH, INFO, LOW, MEDIUM, lacking, numbered
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import rows_named_so, rows_where, under_each_other
from traceanalyzer.selection import A_SAMPLE, is_lost_launch

DIFFERENT_JOBS, LEFT_OUT, MISSING_RANKS = "different_jobs", "ranks_left_out", "missing_ranks"

_RECORDS_GPUS = {"kineto": "ProfilerActivity.CUDA", "nsys": "--trace=cuda,nvtx"}
"""What records GPU work, by a trace's format."""

_SEVERITIES = (HIGH, MEDIUM, LOW, INFO)


class Integrity(Result):
    """One row for each rank (absent: the whole set) and check that found something, gravest first; empty when clean."""

    title = "Integrity"
    keys = ("rank", "check")
    is_of_one_run = True
    columns = declared(
        rank="Global rank; absent for what concerns the set of ranks.",
        check=Column.text("What was looked for.", written=Written.OURS),
        severity=(
            "high: figures are wrong or missing; medium: some of those shown first are; both mark what they "
            "affect. low: slightly, or only figures of the whole capture; info: know it."
        ),
        count=Column.count("How many events, steps or ranks."),
        total=Column.count("Of how many; absent where that says nothing.", is_compared=False),
        sentence="What it is.",
        affects=Column.text(
            "Where it begins, by name: Results, what they share, tables of events, or all of these (events); `doubted` "
            "of the report names all Results that rest on them.",
            written=Written.OURS,
        ),
    )


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """All checks of one rank."""
    if len(trace.gpu_ops):
        return _table(
            [*checks.arguments_of_calls(calls), *chain.from_iterable(check(trace) for check in checks.OF_A_RANK)]
        )
    what = _RECORDS_GPUS.get(trace.meta.format, "the profiler's tracing of GPUs")
    text = f"No GPU work was recorded: a CPU-only job, or recorded without {what}."
    if lost := int(is_lost_launch(trace.api_calls).sum()):
        text = (
            f"GPU records are lost: the CPU launched {lost:,} kernels, and none was recorded. The profiler lost them, "
            "or they ran outside the recorded time. Record again."
        )
    if rows_named_so(trace.host_ops, is_mps_operator).any():
        text = "No GPU work was recorded: PyTorch's profiler leaves out Apple's GPU (MPS), where operators ran."
    return _table([Defect("no_gpu_operations", 1, None, text, ("gpu_ops",), HIGH)])


def across(
    parts: Mapping[int, pd.DataFrame],
    ranks: Ranks,
    steps: Steps,
    call_waits: CallWaits,
    collectives: Collectives,
    kernels: Kernels,
    integrity_common_pct: float = 90,
    wanted_ranks: frozenset[int] | None = None,
    run_world_size: int | None = None,
) -> Integrity:
    """The ranks' defects, and those of the set: ranks that are missing, captures and steps that differ.

    `wanted_ranks` are those that were asked for: others are left out, not missing. `run_world_size` is what the run's
    own record says, of which ranks are missing where traces do not say of how many they are.
    """
    complete = complete_steps(steps.table)
    shared = shared_steps(complete, {*ranks.table["rank"]})
    units = {rank: _table([found]) for rank, found in _other_units(kernels.table).items()}
    own = under_each_other([stack(each, Integrity.columns) for each in (parts, *([units] if units else ()))])
    comparable = complete[complete["step"].isin(shared) & ~complete["rank"].isin(units)]
    size = _world_size(ranks.table)
    of_set = [
        *_missing_ranks(ranks.table, size or run_world_size or 0, wanted_ranks),
        *_different_world_size(size, run_world_size),
        *_impossible_bandwidths(collectives.to_frame()),
        # Calls that a file which is cut off lost are no sign of anything.
        *([] if own["check"].isin([TRUNCATED, OTHER_UNIT]).any() else _of_other_jobs(ranks.table, call_waits.table)),
        *_copies(ranks.table, kernels.table),
        *_shifted(call_waits.table),
        *_different_windows(ranks.table, integrity_common_pct, has_shared=bool(shared)),
        *_different_steps(steps.table, ranks.table, has_shared=bool(shared)),
        *_different_step_lengths(comparable),
    ]
    is_alone = (size or run_world_size or (1 if ranks.is_one_process else len(parts))) < 2  # communicates with nobody
    is_rule = own["check"] == checks.WITHOUT_MATCH
    is_off = is_rule & (own.groupby("sentence")["check"].transform("size") < len(parts))  # it fits on other ranks
    is_off |= is_alone & own["check"].isin(checks.OF_SEVERAL_RANKS)
    table = under_each_other([_table(of_set).assign(rank=pd.NA).astype({"rank": "Int64"}), own[~is_off]])
    order = table["severity"].map({name: place for place, name in enumerate(_SEVERITIES)})
    table = table.assign(order=order).sort_values(["order", "check", "rank"], kind="stable", ignore_index=True)
    return Integrity(table.astype({"rank": "Int64", "count": "int64", "total": "Int64"}))


def _table(defects: Iterable[Defect]) -> pd.DataFrame:
    """Those that something has, a row each."""
    rows = [
        (one.check, one.gravity, one.count, one.total, one.sentence, ", ".join(one.affects))
        for one in defects
        if one.count
    ]
    return pd.DataFrame(rows, columns=[*Integrity.columns][1:]).astype({"total": "Int64"})


def are_of_different_jobs(ranks: pd.DataFrame, call_waits: pd.DataFrame) -> bool:
    """No time in common, and calls of which no other rank answers any. The tables are the Results'."""
    calls, matched = _answerable(call_waits)
    return _share_no_time(ranks) and calls > 0 and not matched


def _of_other_jobs(ranks: pd.DataFrame, call_waits: pd.DataFrame) -> Iterator[Defect]:
    """No time in common, and calls that no other rank answers; both together are no accident."""
    calls, matched = _answerable(call_waits)
    share_no_time, affects = _share_no_time(ranks), ("steps", "members")
    unanswered = f"communication calls that not all ranks of their group answer: {calls - matched:,} of {calls:,}"
    if share_no_time and calls and not matched:
        text = f"The ranks' captures share no time; {unanswered}. These are ranks of different jobs or captures."
        yield Defect(DIFFERENT_JOBS, calls, calls, text, affects, HIGH)
        return
    if share_no_time:
        # Matched calls may as well be others: alike at like distances, as in decoding.
        sure = int((is_true(call_waits["is_matched"]) & ~is_true(call_waits["is_ambiguous"])).sum()) if calls else 0
        why = (
            "Their calls match, so the hosts' clocks are wrong by more than the captures are long."
            if calls and sure > SHARE * calls
            else "Unless the hosts' clocks are wrong, these are not ranks of one capture."
        )
        yield Defect("no_shared_time", len(ranks), None, f"The ranks' captures share no time. {why}", affects, MEDIUM)
    if len(ranks) > 1 and calls and matched <= SHARE * calls:
        formats = sorted(ranks["format"].dropna().unique())
        why = "these may be ranks of different jobs, and who waited in them is not known"
        if len(formats) > 1:
            why = f"files are of several formats ({', '.join(formats)}); record all ranks with one tool"
        yield Defect(
            "unanswered_calls", calls - matched, calls, f"All ranks are here, but {why}: {unanswered}.", affects, MEDIUM
        )


def _answerable(calls: pd.DataFrame) -> tuple[int, int]:
    """Calls whose whole group is here, and those of them that were matched."""
    if calls.empty:
        return 0, 0
    matched = int(is_true(calls["is_matched"]).sum())
    return matched + int((calls["why_not_split"] == NOT_ON_ALL).sum()), matched


def _share_no_time(ranks: pd.DataFrame) -> bool:
    """Of captures: GPUs of one file may well run one after the other."""
    by_file = rows_where(ranks, ranks["window_start_ns"].notna()).groupby("files")
    starts, ends = by_file["window_start_ns"].min(), by_file["window_end_ns"].max()
    return len(starts) > 1 and bool(starts.max() >= ends.min()) and bool((ends > starts).all())


def _other_units(kernels: pd.DataFrame) -> dict[int, Defect]:
    """Of ranks whose kernels take nearer to 1,000 times as long (or short) as most ranks' than equally long."""
    computing = rows_where(kernels, ((kernels["kind"] == "compute") & (kernels["median_ns"] > 0)).to_numpy())
    lengths = computing.pivot_table(index="name", columns="rank", values="median_ns", observed=True)
    lengths = lengths[lengths.notna().sum(axis="columns") > 1]
    if lengths.empty:
        return {}
    ratios = lengths.div(lengths.quantile(axis="columns", interpolation="lower"), axis="index").median().dropna()
    text = (
        "Its kernels take {:,.3g} times as long as the same kernels on other ranks: times are in another unit than the "
        "file says (µs for ns, or ns for µs)."
    )
    return {
        int(rank): Defect(OTHER_UNIT, 1, None, text.format(ratio), severity=HIGH)
        for rank, ratio in ratios.items()
        if round(np.log(ratio) / np.log(1_000))
    }


def _copies(ranks: pd.DataFrame, kernels: pd.DataFrame) -> Iterator[Defect]:
    """Ranks whose operations are those of another rank, to the nanosecond."""
    whole = ["window_start_ns", "window_end_ns", "operations"]
    alike = rows_where(ranks, (ranks.duplicated(whole, keep=False) & (ranks["operations"] >= A_SAMPLE)).to_numpy())
    own = kernels[kernels["rank"].isin(alike["rank"])]
    rows = pd.util.hash_pandas_object(own[["name", "calls", "total_ns", "min_ns", "max_ns"]], index=False)
    marks = rows.groupby(own["rank"]).sum()
    for _, same in marks.groupby(marks, sort=False):
        those = same.index.tolist()
        text = (
            f"{numbered('Rank', those)} have the same operations at the same times, to the nanosecond: one file is "
            "there under several ranks' numbers, and ranks are missing."
        )
        yield Defect("copies_of_a_rank", len(those) if len(those) > 1 else 0, len(ranks), text, severity=HIGH)


def _shifted(call_waits: pd.DataFrame) -> Iterator[Defect]:
    """Ranks whose numbers of steps differ by the same from those of the ranks that they share calls with."""
    if call_waits.empty:
        return
    known = call_waits.loc[call_waits["instance"].notna() & call_waits["step"].notna(), ["instance", "rank", "step"]]
    first = known.sort_values("rank", kind="stable").drop_duplicates("instance").set_index("instance")
    of_base = first.reindex(known["instance"])
    calls = known.assign(base=of_base["rank"].to_numpy(), by=known["step"].array - of_base["step"].array)
    counts = calls[calls["rank"] != calls["base"]].groupby(["rank", "base", "by"]).size().rename("count").reset_index()
    total = counts.groupby(["rank", "base"])["count"].transform("sum")
    held = counts[(counts["count"] >= (MOST * total).clip(lower=3)) & (counts["by"] != 0)]
    if held.empty:
        return
    rank, base, by = held.iloc[0][["rank", "base", "by"]]
    ranks = sorted(held["rank"].unique())
    text = (
        f"Step numbers differ between ranks: rank {rank}'s are {abs(by)} {'higher' if by > 0 else 'lower'} than rank "
        f"{base}'s for the same steps, as their common calls show. It concerns {numbered('rank', ranks)}; stragglers "
        "of a single step are unknown. Start the profiler in the same step on every rank."
    )
    yield Defect(SHIFTED, len(ranks), None, text, ("steps",), MEDIUM)


_COUNTED_TWICE = 2
"""Switches that add up or copy on the way halve what a rank sends, and busbw does not know it."""


def _impossible_bandwidths(collectives: pd.DataFrame) -> Iterator[Defect]:
    """Rows of `collectives` that are faster than twice their links, or, of unknown links, than any GPU's memory."""
    if collectives.empty:
        return
    rate = collectives["busbw_gbps"].astype("Float64")
    # What a rank sends comes out of its GPU's memory.
    most = _COUNTED_TWICE * collectives["link_peak_gbps"].astype("Float64").fillna(fastest_memory_gbps())
    beyond = rows_where(collectives, rate > most).sort_values("busbw_gbps", ascending=False, kind="stable")
    if len(beyond):
        fastest = beyond.iloc[0]
        text = (
            f"Collectives are faster than any link or memory: {fastest['collective']} of rank {fastest['rank']} at "
            f"{fastest['busbw_gbps']:,.0f} GB/s. Their sizes or times are damaged, or clocks differ: no bandwidth is "
            "reliable."
        )
        affects = ("collectives", "by_collective", "nccl", "comm_phases")
        yield Defect("impossible_bandwidths", len(beyond), len(collectives), text, affects, MEDIUM)


def _world_size(ranks: pd.DataFrame) -> int | None:
    """Ranks of the job, as the traces say."""
    sizes = ranks["world_size"].dropna() if len(ranks) else ()
    return int(max(sizes)) if len(sizes) else None


def _different_world_size(size: int | None, of_run: int | None) -> Iterator[Defect]:
    if size is not None and of_run is not None and size != of_run:
        text = (
            f"run.json says that the job has {of_run:,} ranks, the traces say {size:,}: it is another run's, or wrong. "
            "What is taken from it (model, work, memory, step time without a profiler) may not be this job's."
        )
        yield Defect("different_world_size", of_run, size, text, ("mfu", "memory", "memory_fit"), MEDIUM)


def _missing_ranks(ranks: pd.DataFrame, size: int, wanted: frozenset[int] | None) -> Iterator[Defect]:
    here = {*ranks["rank"]} if len(ranks) else set[int]()
    expected = range(size) if wanted is None else wanted
    others = sorted(rank for rank in here if rank not in expected)
    absent = len(expected) - len(here) + len(others) if here else 0
    so = "Figures over ranks cover those that are here; waits for other ranks are not separated from transfers."
    of = f"the job's {size:,} ranks" if wanted is None else f"the {len(wanted):,} ranks that --ranks asks for"
    text = f"Ranks without a trace: {absent:,} of {of} (missing: {lacking(expected, here) if absent else 'none'}). {so}"
    if others:
        text += f" Files are of {numbered('rank', others)}: their numbers, or the size that they tell, are wrong."
    yield Defect(MISSING_RANKS, absent, len(expected), text, ("members",), MEDIUM)
    left_out = 0 if absent or not here else max(size - len(here), 0)
    text = f"{len(here):,} of the job's {size:,} ranks are analyzed (--ranks). {so}"
    yield Defect(LEFT_OUT, left_out, size, text, ("members",), MEDIUM)


def _different_windows(ranks: pd.DataFrame, common_pct: float, *, has_shared: bool) -> Iterator[Defect]:
    """Compares by the hosts' clocks, which may differ by milliseconds between hosts.

    Headlines are of the steps that all ranks share; without any they are of those different windows.
    """
    known = ranks[ranks["window_start_ns"].notna()] if len(ranks) else ranks
    if len(known) < 2:
        return
    starts, ends = known["window_start_ns"].astype("int64"), known["window_end_ns"].astype("int64")
    common, longest = int(ends.min() - starts.max()), int((ends - starts).max())
    if common > 0 and 100 * common < common_pct * longest:
        advice = (
            "Compare ranks by the steps that they share, not by whole captures."
            if has_shared
            else "Figures of whole captures cover different times: record the same steps on every rank, and mark them."
        )
        text = (
            f"The ranks' captures share {100 * common / longest:.0f}% of the longest one's time, by their hosts' "
            f"clocks. {advice}"
        )
        affects = ("breakdown", "nccl", "kernels")
        yield Defect("different_windows", len(known), None, text, affects, LOW if has_shared else MEDIUM)


def _different_steps(steps: pd.DataFrame, ranks: pd.DataFrame, *, has_shared: bool) -> Iterator[Defect]:
    marked = rows_where(steps, steps["step"].notna()) if len(steps) else steps
    if marked.empty:
        return
    holders = marked.groupby("step")["rank"].nunique()
    uncommon = int((holders < len(ranks)).sum())
    text = f"Steps that not every rank's capture has: {uncommon:,} of {len(holders):,}. "
    text += "Headlines cover the others." if has_shared else "No complete one is left; headlines cover whole captures."
    unmarked = sorted({*ranks["rank"].astype(int)} - {*marked["rank"].astype(int)})
    if unmarked and not has_shared:
        text += f" No steps are marked on {numbered('rank', unmarked)}: call the profiler's step() on every rank."
    yield Defect("different_steps", uncommon, len(holders), text, ("steps",), LOW if has_shared else MEDIUM)


def _different_step_lengths(shared: pd.DataFrame) -> Iterator[Defect]:
    """Ranks that exchange gradients take the same time for the same steps, to a few percent in real captures."""
    lengths = shared.groupby("rank")["window_ns"].sum() if len(shared) else pd.Series(dtype="int64")
    if len(lengths) > 1 and lengths.max() >= RATIO * lengths.min():
        text = (
            f"The same steps are {100 * (1 - lengths.min() / lengths.max()):.0f}% shorter on rank {lengths.idxmin()} "
            f"than on rank {lengths.idxmax()}: a rank began the first one late, operations that start ahead of their "
            "step shift its window, or the ranks do not work in step. Compare their times with care."
        )
        yield Defect("different_step_lengths", len(lengths), None, text, ("steps",), MEDIUM)


def untrue_ranks(integrity: pd.DataFrame) -> dict[int, str]:
    """Of each rank whose times cannot be true, or whose operations are not known to be of which step, the first why."""
    grave = integrity[(integrity["severity"] == HIGH) & integrity["rank"].notna()]
    found = {check: sorted(rows["rank"].astype(int)) for check, rows in grave.groupby("check")}
    return {rank: why for check, why in [*UNTRUE.items()][::-1] for rank in found.get(check, ())}


def damage_text(integrity: pd.DataFrame) -> str | None:
    """`what the file of rank 0 tells cannot be true: operations take no time`; `None` where none is damaged so much."""
    ranks = untrue_ranks(integrity)
    if not ranks:
        return None
    first, more = min(ranks), len(ranks) - 1
    whose = f"the files of rank {first} and {more} more tell" if more else f"the file of rank {first} tells"
    return f"what {whose} cannot be true: {ranks[first]}"
