"""What else runs on a GPU that is slower: kernels of another stream, which no other rank runs, share it."""

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.sizes import SIZES
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.what_ran import KERNEL, OPERATOR, WhatRan
from traceanalyzer.findings.basis import EXPLAINED_PCT, plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.late_words import each_of, is_slow_gpu
from traceanalyzer.findings.late.lateness import of_lead, said
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.meaning.vocabulary import COMPUTE


def work_beside(
    episodes: Episodes, what_ran: WhatRan, step_needs: StepNeeds, *, explained_pct: float = EXPLAINED_PCT
) -> list[Finding]:
    """A GPU on which the same kernels take longer runs others beside them, which no rank in time runs.

    For half of what it takes longer, and more; half of their time or more while others run.
    """
    found = []
    for row in filter(is_slow_gpu, said(episodes)):
        late = numbers(row["ranks"])
        own = _own_work(what_ran.table, late, numbers(row["numbers"] or ""))
        together_ns = _together_ns(what_ran.table, step_needs.table, late, numbers(row["numbers"] or ""))
        own_ns = own[own["what"] == KERNEL].groupby("rank")["total_ns"].sum().reindex(late, fill_value=0)
        least_ns = explained_pct / 100 * row["excess_ns"]
        if not own.empty and (own_ns >= least_ns).all() and (2 * together_ns >= own_ns).all():
            found.append(_finding(row, own, float(own_ns.median()), of_lead(episodes, row)))
    return found


def _finding(row: Mapping[str, Any], own: pd.DataFrame, own_ns: float, part_of: str) -> Finding:
    late = numbers(row["ranks"])
    who, most = numbered("rank", late), own.sort_values("total_ns", ascending=False, kind="stable")
    named = most[most["what"] == OPERATOR] if (most["what"] == OPERATOR).any() else most
    name = str(named["name"].iloc[0]).partition(SIZES)[0]
    run = "run" if len(late) > 1 else "runs"
    return Finding(
        severity="low",
        title=f"{first_upper(who)} {run} {name} beside them, which no other rank runs: "
        f"{time_text(own_ns)}{each_of(row)}.",
        evidence=plain(most[["rank", "what", "name", "total_ns", "calls"]].head(8)),
        recommendation=f"Let {who} run {name} on another GPU, or in steps of its own: kernels of several streams share "
        "the GPU, and each takes longer. Where they are as slow without it, look at the clocks.",
        gain_ns=row["gain_ns"],
        named=late,
        table="what_ran",
        part_of=part_of,
        tells_why=True,
    )


def _held(table: pd.DataFrame, steps: Collection[int]) -> pd.DataFrame:
    return table[table["step"].isin(steps)] if steps else table


def _own_work(work: pd.DataFrame, late: Collection[int], steps: Collection[int]) -> pd.DataFrame:
    """What these ranks compute and no other one does, by name: means of the steps."""
    held = _held(work[(work["part"] == COMPUTE.column) & work["what"].isin([KERNEL, OPERATOR])], steps)
    theirs = held.loc[~held["rank"].isin(late), ["what", "name"]].drop_duplicates()
    own = held[held["rank"].isin(late)].merge(theirs, on=["what", "name"], how="left", indicator=True)
    own = own[own["_merge"] == "left_only"]
    count = max(held["step"].nunique(), 1)
    return own.groupby(["rank", "what", "name"], observed=True)[["total_ns", "calls"]].sum().div(count).reset_index()


def _together_ns(work: pd.DataFrame, needs: pd.DataFrame, late: Collection[int], steps: Collection[int]) -> pd.Series:
    """Of each rank by how much its kernels' times are more than the time in which any of them runs: a step's mean."""
    kernels = _held(work[(work["part"] == COMPUTE.column) & (work["what"] == KERNEL)], steps)
    needs = _held(needs, steps)
    total = kernels.groupby("rank")["total_ns"].sum() - needs.groupby("rank")[COMPUTE.column].sum()
    return total.reindex(late, fill_value=0).astype("float64") / max(kernels["step"].nunique(), 1)
