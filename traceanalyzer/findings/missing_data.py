"""Missing data: ranks, ends of files, events, names of groups, a common clock, the inside of CUDA graphs.

A rank's file, the end of a file, events, or the other side of a collective is missing. Figures that depend on it are
marked.

**Fix.** The finding names the file and what to record or copy again.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import pandas as pd

from traceanalyzer.analyses import integrity as checks
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.breakdown import Headline
from traceanalyzer.analyses.communication import matching, waits
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.waits import CallWaits
from traceanalyzer.analyses.integrity import Integrity
from traceanalyzer.analyses.integrity.checks import LOST_AMID, LOST_GRAPHS, SHIFTED, TRUNCATED, UNKNOWN_KERNELS, UNTRUE
from traceanalyzer.analyses.phases import ExposedCalls
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.analyses.streams import Copies
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.findings.savings import CUTS
from traceanalyzer.meaning.columns import numbers, time_text
from traceanalyzer.meaning.vocabulary import GRAVE, HIGH, INFO, LOW, MEDIUM, Severity, first_upper, numbered

PLACE = "The capture", 1

_WHOLE_GRAPHS = "nsys profile --cuda-graph-trace=node"

_NO_PARTNER: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        matching.RANK_MISSING: ("ranks of these groups have no trace", "Put the traces of all ranks into one folder."),
        matching.RANK_CUT: (
            "traces of these groups are cut off",
            "Record again, and let the profiler finish its export.",
        ),
        waits.AMBIGUOUS: (
            "similar calls repeat, and no step markers tell them apart",
            "Mark steps on every rank: profiler.step(), record_function or NVTX ranges (--step-range names them).",
        ),
        matching.NO_ARGUMENTS: (
            "calls are recorded without process group",
            "Record calls with their arguments: record_shapes=True, or NVTX payloads in Nsight Systems.",
        ),
        matching.NOT_ON_ALL: (
            "other ranks' traces lack the same calls",
            "Record the same steps on every rank.",
        ),
    }
)
"""Why the partner of a call is unknown, in words, and what recording tells; by `why_not_split`."""


_SPOILT: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        TRUNCATED: ("Trace cut off", "Record again, and let the profiler finish its export."),
        **dict.fromkeys(
            UNTRUE,
            ("Impossible times or launches", "Use each process's file as the profiler wrote it, unmerged."),
        ),
    }
)
"""What is wrong with a rank of which nothing is concluded, by check, and how to record it again."""

_OF_THE_RUN: Mapping[str, tuple[str, str, str, Severity]] = MappingProxyType(
    {
        checks.DIFFERENT_JOBS: (
            "Ranks were not recorded together: their traces share no time.",
            "No rank's communication calls match another rank's.",
            "Record the same steps on every rank, and analyze the traces of one job at a time.",
            HIGH,
        ),
        "copies_of_a_rank": (
            "The same trace is present under several rank numbers.",
            "Ranks have the same operations at the same times, to the nanosecond.",
            "Replace the copies with the traces of these ranks.",
            MEDIUM,
        ),
        SHIFTED: (
            "Step numbers differ between ranks.",
            "The same communication calls have other step numbers on other ranks, so single steps cannot be compared.",
            "Start the profiler in the same step on every rank.",
            LOW,
        ),
        **dict.fromkeys(
            UNKNOWN_KERNELS,
            (
                "Kernels of unknown kind count as compute, and may be communication.",
                "No rule knows their names.",
                "Name them: --kind 'comm=PATTERN'; the section on data quality lists them.",
                MEDIUM,
            ),
        ),
    }
)
"""Checks of the whole run as headline, why, fix and severity."""

_WHY = {
    **UNTRUE,
    TRUNCATED: "what the profiler wrote last, mostly GPU work, is missing",
}


def missing_data(
    run: Run, integrity: Integrity, headline: Headline, ranks: Ranks, calls: Calls, call_waits: CallWaits,
    exposed_calls: ExposedCalls, copies: Copies,
) -> Iterator[Finding]:  # fmt: skip
    """The recording lacks ranks, ends of files, events, or partners of communication calls.

    From the checks of `integrity`, and from exposed communication of calls whose partners are unknown. Nothing is
    concluded where ranks are of different jobs, every rank's trace is damaged, most time is in opaque graphs, or no
    kernel is recorded and copies do not fill most of the time.
    """
    table = integrity.to_frame()
    grave = table[table["severity"].isin(GRAVE)]
    for headline_, why, fix, severity in dict.fromkeys(_OF_THE_RUN.values()):
        own = [check for check, texts in _OF_THE_RUN.items() if texts[0] == headline_]
        rows = grave[grave["check"].isin(own)]
        if len(rows):
            yield _about(rows, headline_, why, fix, severity)
    if (table["check"] == checks.DIFFERENT_JOBS).any():
        return
    yield from _spoilt(run, table)
    yield from _lost_events(run, table)
    yield from _opaque_graphs(run, table, headline)
    yield from _no_kernels(table, headline, copies)
    yield from _silent_ranks(ranks, calls, table)
    yield from _unknown_partners(run, table, calls, call_waits, exposed_calls)


def _spoilt(run: Run, table: pd.DataFrame) -> Iterator[Finding]:
    """Damaged files, a finding for each way in which they are."""
    own = table[table["check"].isin([*_SPOILT]) & (table["severity"] == HIGH)]
    for (what, fix), rows in own.groupby(own["check"].map(_SPOILT), sort=False):
        of = sorted({int(rank) for rank in rows["rank"].dropna()})
        is_all = {*of} >= {*run.ranks}
        yield _about(
            rows,
            f"{what}: {run.who(of)}.",
            f"{first_upper(_WHY[rows['check'].iloc[0]])}.",
            fix,
            HIGH if is_all else MEDIUM,
            () if is_all and len(of) > 1 else of,
        )


def _lost_events(run: Run, table: pd.DataFrame) -> Iterator[Finding]:
    """GPU operations that the profiler lost, where no complete step is without such a loss."""
    cut = table.loc[table["check"] == TRUNCATED, "rank"]
    own = table[(table["check"] == LOST_AMID) & (table["severity"] != INFO) & ~table["rank"].isin(cut)]
    if run.steps is not None or own.empty:
        return
    of = sorted(own["rank"].astype(int))
    lost, total = own["count"].sum(), own["total"].sum()
    graphs = table[(table["check"] == LOST_GRAPHS) & table["rank"].isin(of)]
    is_graphs = len(graphs) > 0 and graphs["count"].sum() >= SHARE * graphs["total"].sum()
    yield _about(
        table[table["check"].isin([LOST_AMID, LOST_GRAPHS, "launches_without_operation", "partial_steps"])],
        f"The profiler lost {100 * lost / total:.0f}% of the GPU operations of {run.who(of)}.",
        "CUDA graphs were launched, and nothing they ran is recorded."
        if is_graphs
        else "Their launches are recorded, so compute is underestimated and idle time overestimated.",
        f"Record again with {_WHOLE_GRAPHS}."
        if is_graphs
        else "Record fewer steps, without with_stack, record_shapes and profile_memory.",
        HIGH
        if lost >= SHARE * total and {*of} >= {*run.ranks}
        else MEDIUM
        if own["severity"].isin([MEDIUM, HIGH]).any()
        else LOW,
        of if len(of) < len(run.ranks) or len(of) == 1 else (),
    )


def _opaque_graphs(run: Run, table: pd.DataFrame, headline: Headline) -> Iterator[Finding]:
    rows = table[table["check"] == "graphs_of_unknown_content"]
    if rows.empty:
        return
    share = float(headline.to_frame()["opaque_pct"].astype("float64").mean())
    yield _about(
        rows,
        f"CUDA graphs are recorded as a whole: {share:.0f}% of {'the step' if run.steps else 'the trace'}.",
        "Kernels, copies and communication inside are unknown.",
        f"Record again with {_WHOLE_GRAPHS}.",
        HIGH if share >= 100 * SHARE else MEDIUM if run.is_worth(share / 100 * run.step_ns) else LOW,
    )


def _no_kernels(table: pd.DataFrame, headline: Headline, copies: Copies) -> Iterator[Finding]:
    """No kernels, where copies do not fill most of the time: memsets alone tell nothing."""
    parts = ["compute_ns", "comm_ns", "opaque_ns", "exposed_copy_ns", "window_ns"]
    ns = headline.table[parts].astype("Float64").fillna(0).sum()
    has_copies = len(copies) > 0 and bool((copies.table["direction"] != "memset").any())
    is_copying = has_copies and ns["exposed_copy_ns"] >= SHARE * ns["window_ns"]
    if len(headline.table) and not ns[["compute_ns", "comm_ns", "opaque_ns"]].sum() and not is_copying:
        yield _about(
            table.iloc[:0],
            "No kernels were recorded, only copies and memsets.",
            "What the GPU computes, and so the bottleneck, is unknown.",
            "Record while kernels run: nsys profile --trace=cuda,nvtx, or ProfilerActivity.CUDA.",
            HIGH,
        )


def _silent_ranks(ranks: Ranks, calls: Calls, table: pd.DataFrame) -> Iterator[Finding]:
    """Ranks of a group that launch no collective while the group's others do; not of files that lack events."""
    frame = calls.to_frame()
    texts = frame["group_ranks"].dropna().astype("str").unique() if len(frame) else ()
    lost = {int(rank) for rank in table.loc[table["check"] == LOST_AMID, "rank"].dropna()}
    here = {int(rank) for rank in ranks.table["rank"]} - ranks.cut_off - lost
    silent = sorted({rank for text in texts for rank in numbers(text)} & here - {*frame["rank"]}) if len(texts) else []
    if silent:
        yield _about(
            table.iloc[:0],
            f"{first_upper(numbered('rank', silent))} launch{'es' if len(silent) == 1 else ''} no collective.",
            "The other ranks of the group wait in theirs: a hang, or a trace of another time.",
            "Set TORCH_NCCL_DUMP_ON_TIMEOUT=1: the flight recorder shows the collective that is never joined.",
            MEDIUM,
            silent,
        )


def _unknown_partners(
    run: Run, table: pd.DataFrame, calls: Calls, call_waits: CallWaits, exposed_calls: ExposedCalls
) -> Iterator[Finding]:
    """Exposed communication of calls whose other ends are not recorded: transfer, or waiting for an unknown rank."""
    if not len(exposed_calls) or not len(call_waits):
        return
    why = call_waits.table[["rank", "call", "why_not_split", "is_matched", "is_ambiguous"]]
    held = run.within(exposed_calls.to_frame()).merge(why, on=["rank", "call"])
    is_open = ~is_true(held["is_matched"]) | is_true(held["is_ambiguous"])
    # After the last rank that is here has come, a group that lacks one may still wait for it.
    reason = held["why_not_split"].astype("object").fillna(matching.RANK_MISSING)
    open_ns = held["unmatched_ns"].astype("float64").where(is_open & reason.isin([*_NO_PARTNER]), 0.0)
    mean_ns = float(open_ns.sum()) / run.count / max(len(run.ranks), 1)
    if not run.is_worth(mean_ns):
        return
    most = open_ns.groupby(reason).sum().idxmax()
    because, fix = _NO_PARTNER[most]
    what = f"{time_text(mean_ns)}{run.each} of communication is unattributed"
    absent = _absent(calls, run)
    is_left_out = (table["check"] == checks.LEFT_OUT).any()
    if most == matching.RANK_MISSING:
        fix = "Analyze all ranks: leave out --ranks." if is_left_out else fix
        who = numbered("rank", absent) if absent else "other ranks"
        what = f"{'Without' if is_left_out else 'No trace of'} {who}: {what}"
        because = "the others may wait for a rank that is missing"
    else:
        what = f"{what}: transfer or waiting"
    yield _about(
        table[table["check"].isin([checks.MISSING_RANKS, checks.LEFT_OUT, "unanswered_calls"])],
        f"{what}.",
        f"{first_upper(because)}.",
        fix,
        MEDIUM if 100 * mean_ns >= CUTS[0][0] * run.step_ns else LOW,
        absent if most == matching.RANK_MISSING else (),
    )


def _absent(calls: Calls, run: Run) -> list[int]:
    """Ranks of the groups that communicate of which there is no trace."""
    texts = calls.to_frame()["group_ranks"].dropna().astype("str").unique() if len(calls) else ()
    return sorted({rank for text in texts for rank in numbers(text)} - {*run.ranks})


def _about(
    rows: pd.DataFrame, headline: str, why: str, fix: str, severity: Severity, named: Sequence[int] = ()
) -> Finding:
    """A finding with these rows of `integrity` as evidence."""
    found = zip(rows["rank"], rows["check"], strict=True)
    evidence = tuple({"rank": None if pd.isna(rank) else int(rank), "check": str(check)} for rank, check in found)
    return Finding(
        headline, why, fix, named=tuple(named), evidence=evidence, is_about_capture=True, severity=severity,
        table="integrity",
    )  # fmt: skip
