"""How long the hosts' steps take where no GPU works, and what the threads of a mean step do."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, is_true, percent, ratio, typed
from traceanalyzer.analyses.host.host_work import HostWork
from traceanalyzer.analyses.host.thread_roles import AUTOGRAD, MAIN
from traceanalyzer.analyses.names import CpuStepPartsColumn, CpuStepsColumn
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model.tables import without_rows

STEP, UNRECORDED = "step", "unrecorded"


class CpuSteps(Result[CpuStepsColumn]):
    """One row for each step that no capture cuts, of captures without GPU work."""

    title: ClassVar[str] = "Steps of the hosts"
    keys: ClassVar[tuple[str, ...]] = ("step",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "step": Column.ident("Step."),
        "ranks": Column.count("Ranks that have it.", is_compared=False),
        "mean_ns": Column.time("The range that marks it on the host: mean over these ranks.", adds=Adds.DERIVED),
        "least_ns": Column.time("Least of them.", adds=Adds.EXTREME),
        "most_ns": Column.time("Most of them.", adds=Adds.EXTREME),
        "times_median": Column.number("mean_ns / its median over the steps.", better=Better.LESS),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        median_ns = pd.Series(table["mean_ns"].median(), index=table.index)
        return self._with(table, {"times_median": ratio(table["mean_ns"], median_ns)})


class CpuStepParts(Result[CpuStepPartsColumn]):
    """One row for the mean step of captures without GPU work, and for each part of it.

    The main thread's parts and what is unrecorded add up to the step; other threads work beside it.
    """

    title: ClassVar[str] = "What hosts do in a step"
    keys: ClassVar[tuple[str, ...]] = ("part", "name")
    columns: ClassVar[Mapping[str, Column]] = {
        "part": Column.text(
            f"{STEP} (all of it), {MAIN} (the main thread is in `name`), {UNRECORDED} (the main thread is in nothing "
            f"that is recorded), {AUTOGRAD} (autograd's threads work, added up)."
        ),
        "name": Column.text(
            "Range, collective or operator, as `host_work` has it; absent where the row is no single one's.",
            written=Written.KERNEL,
            absent="all",
        ),
        "ranks": Column.count("Ranks with whole steps, which means are over.", is_compared=False),
        "mean_ns": Column.time("Time of a mean step: mean over these ranks.", adds=Adds.DERIVED, leads=True),
        "least_ns": Column.time("Least of them; 0 where one does none of it.", adds=Adds.EXTREME),
        "most_ns": Column.time("Most of them.", adds=Adds.EXTREME),
        "step_pct": Column.share("100 · mean_ns / that of the step."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        step_ns = table.loc[table["part"] == STEP, "mean_ns"].sum()
        return self._with(table, {"step_pct": percent(table["mean_ns"], pd.Series(step_ns, index=table.index))})


def across(_parts: Mapping[int, pd.DataFrame], headline: Headline, steps: Steps) -> CpuSteps:
    """The ranks' steps put together; no rows where a GPU works, or no step is marked."""
    lengths = _lengths(headline, steps)
    if lengths.empty:
        return CpuSteps(without_rows(CpuSteps.columns))
    return CpuSteps(_over_ranks(lengths.groupby("step")["host_ns"]).reset_index())


def of_parts(_parts: Mapping[int, pd.DataFrame], headline: Headline, steps: Steps, host_work: HostWork) -> CpuStepParts:
    """Each rank's mean step, and what its threads do in it, put together; no rows as of `across`."""
    lengths = _lengths(headline, steps)
    if lengths.empty:
        return CpuStepParts(without_rows(CpuStepParts.columns))
    step_ns = lengths.groupby("rank")["host_ns"].mean()
    main, autograd = (_by_name(host_work, role, step_ns.index) for role in (MAIN, AUTOGRAD))
    rows = {(STEP, None): step_ns, **{(MAIN, name): main[name] for name in main}}
    if len(main.columns):
        rows[UNRECORDED, None] = (step_ns - main.sum(axis=1)).clip(lower=0)
    if len(autograd.columns):
        rows[AUTOGRAD, None] = autograd.sum(axis=1)
    of_rank = pd.concat([of.rename("host_ns").to_frame().assign(row=row) for row, of in enumerate(rows.values())])
    table = _over_ranks(of_rank.groupby("row")["host_ns"])
    table = table.assign(part=[part for part, _ in rows], name=[name for _, name in rows])
    return CpuStepParts(typed(table.reset_index(drop=True), {"part": "str", "name": "str"}))


def _lengths(headline: Headline, steps: Steps) -> pd.DataFrame:
    """`rank`, `step` and `host_ns` of the steps that are whole on the host, where no rank has GPU work."""
    table: pd.DataFrame = steps.table
    whole = table[~is_true(table["is_partial"]) & table["step"].notna()] if not len(headline) and len(table) else None
    if whole is None:
        return without_rows(("rank", "step", "host_ns"))
    host_ns = (whole["host_end_ns"] - whole["host_start_ns"]).astype("float64")
    return whole[["rank", "step"]].assign(host_ns=host_ns)


def _by_name(host_work: HostWork, role: str, ranks: pd.Index) -> pd.DataFrame:
    """What threads of a role do in a step: a row for each of the ranks, a column for each name, longest first (ns)."""
    work: pd.DataFrame = host_work.to_frame()
    mine = work[(work["role"] == role) & work["host_per_step_ns"].notna()]
    mine = mine.astype({"host_per_step_ns": "float64"})
    times = mine.pivot_table(values="host_per_step_ns", index="rank", columns="name", aggfunc="sum")
    times = times.reindex(ranks).fillna(0.0)
    return times[times.mean().sort_values(ascending=False, kind="stable").index]


def _over_ranks(times: "pd.api.typing.SeriesGroupBy") -> pd.DataFrame:
    return pd.DataFrame(
        {"ranks": times.size(), "mean_ns": times.mean(), "least_ns": times.min(), "most_ns": times.max()}
    )
