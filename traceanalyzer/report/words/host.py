"""What is said of a capture without GPU work: what the CPUs did."""

from typing import Any

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import text

NO_GPU_WORK = "No GPU work in this capture; here is the host."

_MOST_ROWS = 8


def is_host_only(results: Results) -> bool:
    """Whether no rank has GPU work, and there is something to say of the host."""
    return not len(results["headline"]) and "host_work" in results and bool(len(results["host_work"]))


def sentences(results: Results) -> list[str]:
    """That there is no GPU work, what the main thread is longest in, and the CPU's collectives."""
    table = results["host_work"].to_frame()
    made = [NO_GPU_WORK]
    for role, what in (
        ("main", "The main thread is longest in"),
        ("collectives", "Of the CPU's collectives the longest is"),
    ):
        own = table[table["role"] == role]
        if len(own):
            made.append(f"{what} {_over_ranks(own)}.")
    return made


def longest(results: Results) -> list[dict[str, Any]]:
    """The rows that a terminal shows: the longest names over all ranks, with their mean time in ns."""
    table = results["host_work"].to_frame().assign(time_ns=_time_ns)
    groups = table.groupby(["role", "what", "name"], sort=False)
    means = groups["time_ns"].mean().sort_values(ascending=False).head(_MOST_ROWS)
    ranks = groups.size()
    return [
        {"role": key[0], "what": key[1], "name": key[2], "ranks": int(ranks[key]), "time_ns": float(mean)}
        for key, mean in means.items()
    ]


def has_steps(results: Results) -> bool:
    """Whether times are of a step: all ranks have complete ones."""
    return bool(results["host_work"].to_frame()["steps"].notna().all())


def _over_ranks(own: pd.DataFrame) -> str:
    """`Optimizer.step#AdamW.step: 1.2 to 1.5 ms a step`."""
    times = own.assign(time_ns=_time_ns(own))
    name = times.groupby("name", sort=False)["time_ns"].mean().idxmax()
    held = times.loc[times["name"] == name, "time_ns"]
    least, most = text(float(held.min()), Unit.NS), text(float(held.max()), Unit.NS)
    of = " a step" if own["steps"].notna().all() else " in the capture"
    shown = short_name(str(name))
    return f"{shown}: {most}{of}" if least == most else f"{shown}: {least} to {most}{of}, by rank"


def _time_ns(table: pd.DataFrame) -> pd.Series:
    """A step's time; the whole capture's where not all ranks have steps."""
    of_steps = table["steps"].notna().all()
    return table["host_per_step_ns" if of_steps else "host_ns"].astype("float64")
