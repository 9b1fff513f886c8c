"""Steps in which all ranks run more than in the others: an evaluation, an optimizer that works now and then."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.what_ran import KERNEL, OPERATOR, RANGE, WhatRan
from traceanalyzer.findings.basis import plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.uneven.uneven_steps import compute_by_step
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import COMPUTE

LONGER_STEP_PCT = 25.0
"""Of what a rank computes in its usual step: by so much more all ranks compute in the steps that are told."""

_LEAST_STEPS = 4
"""After the first recorded one, which may be a warm-up: of fewer it is not known which are usual."""

_MOST = 0.5
"""Of what is more: what is called more often has to hold it, and a name most of that."""


def longer_steps(
    step_needs: StepNeeds, what_ran: WhatRan, *, longer_step_pct: float = LONGER_STEP_PCT
) -> list[Finding]:
    """Fewer than half of the steps, in which every rank computes a quarter more than usual, by more calls.

    The first recorded step may be a warm-up and is left out. Stages of a pipeline are held against themselves. Nothing
    is gained: it is work that is to be done.
    """
    wide = compute_by_step(step_needs).iloc[1:]
    if len(wide) < _LEAST_STEPS:
        return []
    usual = wide.median()
    more = (wide - usual).min(axis=1)
    more = more[more >= longer_step_pct / 100 * float(usual.max())]
    if more.empty or 2 * len(more) >= len(wide) or not usual.max():
        return []
    own = _more_calls(what_ran.table, wide, more)
    held = own[own["what"] == OPERATOR] if (own["what"] == OPERATOR).any() else own[own["what"] == KERNEL]
    if held["total_ns"].sum() < _MOST * float(more.min()):
        return []
    return [_found(wide, usual, more, _name(own, held))]


def _more_calls(work: pd.DataFrame, wide: pd.DataFrame, more: pd.Series) -> pd.DataFrame:
    """What is called more often in these steps, by name: how much longer it takes, on the rank where that is least.

    And the ranges that are in no other step.
    """
    work = work[(work["part"] == COMPUTE.column) & work["step"].isin(wide.index)]
    by_step = {
        each: work.pivot_table(
            index=["what", "name", "rank"], columns="step", values=each, aggfunc="sum", fill_value=0
        ).reindex(columns=wide.index, fill_value=0)
        for each in ("total_ns", "calls")
    }
    usual = wide.index.difference(more.index)
    total, calls = ((each[more.index].min(axis=1), each[usual].median(axis=1)) for each in by_step.values())
    is_range = total[0].index.get_level_values("what") == RANGE
    is_more = np.where(is_range, total[1] == 0, calls[0] > calls[1])
    extra = (total[0] - total[1])[is_more].rename("total_ns").reset_index()
    by_name = extra.pivot_table(index=["what", "name"], columns="rank", values="total_ns")
    least: pd.Series = by_name.reindex(columns=wide.columns).dropna().min(axis=1)
    return least[least > 0].rename("total_ns").reset_index()


def _name(own: pd.DataFrame, held: pd.DataFrame) -> str | None:
    """The range that holds most of it, else the operator or kernel; none where no one does."""
    total_ns = held["total_ns"].sum()
    for each in (own[own["what"] == RANGE], held):
        longest = each.nlargest(1, "total_ns")
        if len(longest) and float(longest["total_ns"].iloc[0]) >= _MOST * total_ns:
            return str(longest["name"].iloc[0])
    return None


def _found(wide: pd.DataFrame, usual: pd.Series, more: pd.Series, name: str | None) -> Finding:
    ranks, is_one = wide.shape[1], len(more) == 1
    who = {1: "the GPU computes", 2: "both GPUs compute"}.get(ranks, f"all {ranks:,} GPUs compute")
    mean_ns = float(more.sum()) / len(wide)
    grade = severity(100 * mean_ns / float(wide.mean(axis=1).mean()))
    most = f", most of it {name}" if name else ""
    return Finding(
        severity="medium" if grade == "high" else grade,
        title=f"In {numbered('step', more.index)} {who} {time_text(float(more.mean()))} {'' if is_one else 'a step '}"
        f"longer than in the others{most}: work that is done now and then, {time_text(mean_ns)} of a mean step.",
        evidence=plain(
            pd.DataFrame({"step": wide.index, "mean_ns": wide.mean(axis=1).round(), "usual_ns": usual.mean()})
        ),
        recommendation="Look at these steps apart from the others (--steps). What they do beside can be done less "
        "often, or on less.",
        steps=tuple(int(step) for step in more.index),
        table="step_needs",
    )
