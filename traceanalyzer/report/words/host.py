"""What is said of a capture without GPU work: what the CPUs did."""

from typing import TYPE_CHECKING

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.host.thread_roles import COLLECTIVES, MAIN
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import text

if TYPE_CHECKING:
    from traceanalyzer.analyses.frames import Row
    from traceanalyzer.analyses.names import HostWorkOverRanksColumn

NO_GPU_WORK = "No GPU work in this capture; here is the host."

_MOST_ROWS = 8


def is_host_only(results: Results) -> bool:
    """Whether no rank has GPU work, and there is something to say of the host."""
    return not len(results["headline"]) and "host_work" in results and bool(len(results["host_work"]))


def sentences(results: Results) -> list[str]:
    """That there is no GPU work, what the main thread is longest in, and the CPU's collectives."""
    every = results["host_work_over_ranks"].rows()
    made = [NO_GPU_WORK]
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
