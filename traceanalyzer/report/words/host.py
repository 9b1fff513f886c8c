"""What is said of a capture without GPU work: what the CPUs did."""

from typing import TYPE_CHECKING

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.host.cpu_steps import STEP, UNRECORDED
from traceanalyzer.analyses.host.host_work import times_to_compare
from traceanalyzer.analyses.host.thread_roles import AUTOGRAD, COLLECTIVES, MAIN
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import named, numbered
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import text

if TYPE_CHECKING:
    from traceanalyzer.analyses.frames import Row
    from traceanalyzer.analyses.names import CpuStepPartsColumn, HostWorkOverRanksColumn

NO_GPU_WORK = "No GPU work in this capture; here is the host."

_MOST_ROWS = 8

_MOST_PARTS = 3
"""Names of a step's parts that its sentence has."""

_LEAST_PART_PCT = 5.0
"""Of a step: what takes less is not named there."""

_FAR_LONGER = 1.5
"""Times the median step: a step that is longer is named."""


def is_host_only(results: Results) -> bool:
    """Whether no rank has GPU work, and there is something to say of the host."""
    return not len(results["headline"]) and "host_work" in results and bool(len(results["host_work"]))


def how_long(results: Results) -> str:
    """How long a step takes on the host, what its threads spend it in, and which step is far longer."""
    parts = results["cpu_step_parts"].rows()
    if not parts:
        return "No whole step is marked: how long one takes is not known."
    whole = next(row for row in parts if row["part"] == STEP)
    least, most = text(whole["least_ns"], Unit.NS), text(whole["most_ns"], Unit.NS)
    spread = f" ({least} to {most}, by rank)" if least != most else ""
    told = f"A step takes {text(whole['mean_ns'], Unit.NS)} on the host{spread}{_spent_in(parts)}."
    longest = max(results["cpu_steps"].rows(), key=lambda row: row["mean_ns"])
    if longest["times_median"] is not None and longest["times_median"] > _FAR_LONGER:
        told += f" Step {longest['step']} is the longest: {text(longest['mean_ns'], Unit.NS)}."
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


def _spent_in(parts: "list[Row[CpuStepPartsColumn]]") -> str:
    """`: the main thread is in backward for 64 % of it, in forward for 22 %, and nothing of it is recorded for 9 %`."""
    of = {part: [row for row in parts if row["part"] == part] for part in (MAIN, UNRECORDED, AUTOGRAD)}
    if not of[MAIN]:
        return ""
    shown = [(f"in {short_name(str(row['name']))}", row) for row in of[MAIN][:_MOST_PARTS]]
    rest = [("in nothing that is recorded", row) for row in of[UNRECORDED]]
    told = [f"{what} for {row['step_pct']:.0f} %" for what, row in (*shown, *rest) if _is_named(row)]
    beside = [f"; autograd's thread works for {row['step_pct']:.0f} %" for row in of[AUTOGRAD] if _is_named(row)]
    return f". The main thread is {named(told)} of it{''.join(beside)}" if told else ""


def _is_named(row: "Row[CpuStepPartsColumn]") -> bool:
    return row["step_pct"] is not None and row["step_pct"] >= _LEAST_PART_PCT


def _over_ranks(row: "Row[HostWorkOverRanksColumn]", results: Results) -> str:
    """`forward: 1.2 ms (rank 3) to 1.5 ms (rank 0) a step`; which ranks, where not all of them do it."""
    table, _ = times_to_compare(results["host_work"])
    rows = table[(table["role"] == row["role"]) & (table["what"] == row["what"]) & (table["name"] == row["name"])]
    some = sorted(set(rows["rank"].tolist()))
    where = f" on {numbered('rank', some)} alone" if len(some) < table["rank"].nunique() else ""
    per = "a step" if row["is_of_steps"] else "in the capture"
    least, most = text(row["least_ns"], Unit.NS), text(row["most_ns"], Unit.NS)
    shown = f"{short_name(str(row['name']))}{where}"
    if least == most:
        return f"{shown}: {most} {per}"
    of_rank = rows.set_index("rank")["time_ns"]
    return f"{shown}: {least} (rank {of_rank.idxmin()}) to {most} (rank {of_rank.idxmax()}) {per}"
