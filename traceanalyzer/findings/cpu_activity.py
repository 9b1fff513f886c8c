"""What CPUs do while their GPUs wait for them."""

import pandas as pd

from traceanalyzer.analyses.blame.step_budget import DOING, StepNeeds, WhatRan, host_needs_ns
from traceanalyzer.analyses.grouping import memoized_by_tables
from traceanalyzer.analyses.host.activity import NOTHING
from traceanalyzer.analyses.host.host_names import holds_whole_pass, is_launch, is_sync
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.vocabulary import HOST


def doing(run: Run, what_ran: WhatRan, rank: int, what: str = DOING) -> pd.Series:
    """Idle time of a rank's GPU by what its CPU does, or in which range it is, before launches: ns per step."""
    times = _idle_by_rank(what_ran.table, what=what, steps=run.steps)
    own = times.xs(rank) if rank in times.index else times[:0].droplevel("rank")
    return own.sort_values(ascending=False) / run.count


@memoized_by_tables
def _idle_by_rank(table: pd.DataFrame, *, what: str, steps: tuple[int, ...] | None) -> pd.Series:
    """The same of each rank and name, in all of these steps."""
    is_asked = (table["part"] == HOST.column) & (table["what"] == what)
    own = table[is_asked if steps is None else is_asked & table["step"].isin(steps)]
    return own.groupby(["rank", "name"], observed=True)["total_ns"].sum()


def other_work(times: pd.Series) -> str | None:
    """What takes most of the idle time of `doing` and is neither an operator nor a call of the GPU's runtime."""
    if times.empty or times.iloc[0] < SHARE * times.sum():
        return None
    name = str(times.index[0])
    is_launching = "::" in name or name.startswith(NOTHING) or is_launch(name) or is_sync(name)
    return None if is_launching or holds_whole_pass(name) else name


def launching_ns(run: Run, step_needs: StepNeeds) -> pd.Series:
    """What launching a step takes the CPUs, by rank in ns: loading the next batch is apart."""
    steps = run.within(step_needs.table)
    return host_needs_ns(steps.assign(needed_host_ns=steps["needed_host_ns"] - steps["loading_ns"].fillna(0)))
