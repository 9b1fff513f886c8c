"""What is said of a capture without GPU work: what the CPUs did."""

from typing import TYPE_CHECKING

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.host.thread_roles import AUTOGRAD, COLLECTIVES, MAIN
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import named, numbered
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import text

if TYPE_CHECKING:
    from traceanalyzer.analyses.frames import Row
    from traceanalyzer.analyses.names import HostWorkOverRanksColumn

NO_GPU_WORK = "No GPU work in this capture; here is the host."

_MOST_ROWS = 8

_MOST_PARTS = 3
"""Names of a step's parts that its sentence has."""

_LEAST_PART = 0.05
"""Of a step: what takes less is not named there."""

_FAR_LONGER = 1.5
"""Times the median step: a step that is longer is named."""


def is_host_only(results: Results) -> bool:
    """Whether no rank has GPU work, and there is something to say of the host."""
    return not len(results["headline"]) and "host_work" in results and bool(len(results["host_work"]))


def how_long(results: Results) -> str:
    """How long a step takes on the host, what its threads spend it in, and which step is far longer."""
    steps = results["steps"].table
    lengths = steps.assign(host_ns=steps["host_end_ns"] - steps["host_start_ns"])[~is_true(steps["is_partial"])]
    if lengths.empty:
        return "No whole step is marked: how long one takes is not known."
    by_rank, by_step = (lengths.groupby(key)["host_ns"].mean() for key in ("rank", "step"))
    least, most = (text(float(end), Unit.NS) for end in (by_rank.min(), by_rank.max()))
    spread = f" ({least} to {most}, by rank)" if least != most else ""
    told = f"A step takes {text(float(by_rank.mean()), Unit.NS)} on the host{spread}"
    told += f"{_spent_in(results, by_rank)}."
    if by_step.max() > _FAR_LONGER * by_step.median():
        told += f" Step {by_step.idxmax()} is the longest: {text(float(by_step.max()), Unit.NS)}."
    return told


def sentences(results: Results) -> list[str]:
    """What the main thread is longest in, and the CPU's collectives."""
    every = results["host_work_over_ranks"].rows()
    made = [NO_GPU_WORK, how_long(results)]
    for role, what in (
        (MAIN, "The main thread is longest in"),
        (COLLECTIVES, "Of the CPU's collectives the longest is"),
    ):
        own = [row for row in every if row["role"] == role]
        if own:
            made.append(f"{what} {_over_ranks(own[0], results)}.")
    return made


def longest(results: Results) -> "list[Row[HostWorkOverRanksColumn]]":
    """The rows that a terminal shows: the longest names over all ranks."""
    return results["host_work_over_ranks"].rows()[:_MOST_ROWS]


def has_steps(results: Results) -> bool:
    """Whether times are of a step: all ranks have complete ones."""
    return any(row["is_of_steps"] for row in results["host_work_over_ranks"].rows()[:1])


def _spent_in(results: Results, step_ns: pd.Series) -> str:
    """`: the main thread is in backward for 64 % of it, in forward for 22 %, and nothing of it is recorded for 9 %`."""
    mine, autograd = (_a_step(results, role, len(step_ns)) for role in (MAIN, AUTOGRAD))
    whole_ns = float(step_ns.mean())
    if mine.empty or not whole_ns:
        return ""
    shown = [(f"in {short_name(str(name))}", float(ns)) for name, ns in mine.head(_MOST_PARTS).items()]
    rest = [("in nothing that is recorded", whole_ns - float(mine.sum()))]
    told = [f"{what} for {100 * ns / whole_ns:.0f} %" for what, ns in (*shown, *rest) if ns >= _LEAST_PART * whole_ns]
    beside = 100 * float(autograd.sum()) / whole_ns
    also = f"; autograd's thread works for {beside:.0f} %" if beside >= 100 * _LEAST_PART else ""
    return f". The main thread is {named(told)} of it{also}" if told else ""


def _a_step(results: Results, role: str, ranks: int) -> pd.Series:
    """What threads of a role do in a step of a mean rank, by name, longest first; times (ns)."""
    work = results["host_work"].to_frame()
    mine = work[(work["role"] == role) & work["host_per_step_ns"].notna()]
    return (mine.groupby("name")["host_per_step_ns"].sum() / ranks).sort_values(ascending=False, kind="stable")


def _over_ranks(row: "Row[HostWorkOverRanksColumn]", results: Results) -> str:
    """`Optimizer.step#AdamW.step: 1.2 to 1.5 ms a step, by rank`; which ranks, where not all of them do it."""
    table = results["host_work"].table
    rows = table[(table["role"] == row["role"]) & (table["what"] == row["what"]) & (table["name"] == row["name"])]
    some = sorted(set(rows["rank"].tolist()))
    where = f" on {numbered('rank', some)} alone" if len(some) < table["rank"].nunique() else ""
    per = "a step" if row["is_of_steps"] else "in the capture"
    least, most = text(row["least_ns"], Unit.NS), text(row["most_ns"], Unit.NS)
    shown = f"{short_name(str(row['name']))}{where}"
    return f"{shown}: {most} {per}" if least == most else f"{shown}: {least} to {most} {per}, by rank"
