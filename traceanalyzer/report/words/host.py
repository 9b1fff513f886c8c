"""What is said of a capture without GPU work: what the CPUs did."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.host.host_work import times_to_compare
from traceanalyzer.analyses.host.thread_roles import COLLECTIVES, MAIN
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import text

NO_GPU_WORK = "No GPU work in this capture; here is the host."

_MOST_ROWS = 8


def is_host_only(results: Results) -> bool:
    """Whether no rank has GPU work, and there is something to say of the host."""
    return not len(results["headline"]) and "host_work" in results and bool(len(results["host_work"]))


def sentences(results: Results) -> list[str]:
    """That there is no GPU work, what the main thread is longest in, and the CPU's collectives."""
    table, is_of_steps = times_to_compare(results["host_work"])
    made = [NO_GPU_WORK]
    for role, what in (
        (MAIN, "The main thread is longest in"),
        (COLLECTIVES, "Of the CPU's collectives the longest is"),
    ):
        own = table[table["role"] == role]
        if len(own):
            per = "a step" if is_of_steps else "in the capture"
            made.append(f"{what} {_over_ranks(own, table['rank'].unique(), per)}.")
    return made


def longest(results: Results) -> list[dict[str, Any]]:
    """The rows that a terminal shows: the longest names over all ranks, with their mean time in ns."""
    table, _ = times_to_compare(results["host_work"])
    groups = table.groupby(["role", "what", "name"], sort=False)
    means = groups["time_ns"].mean().sort_values(ascending=False).head(_MOST_ROWS)
    ranks = groups.size()
    return [
        {"role": key[0], "what": key[1], "name": key[2], "ranks": int(ranks[key]), "time_ns": float(mean)}
        for key, mean in means.items()
    ]


def has_steps(results: Results) -> bool:
    """Whether times are of a step: all ranks have complete ones."""
    return times_to_compare(results["host_work"])[1]


def _over_ranks(own: pd.DataFrame, ranks: np.ndarray, per: str) -> str:
    """`Optimizer.step#AdamW.step: 1.2 to 1.5 ms a step, by rank`; which ranks, where not all of them do it."""
    name = own.groupby("name", sort=False)["time_ns"].mean().idxmax()
    rows = own[own["name"] == name]
    held = rows["time_ns"]
    least, most = text(float(held.min()), Unit.NS), text(float(held.max()), Unit.NS)
    some = sorted(set(rows["rank"].tolist()))
    where = f" on {numbered('rank', some)} alone" if len(some) < len(ranks) else ""
    shown = f"{short_name(str(name))}{where}"
    return f"{shown}: {most} {per}" if least == most else f"{shown}: {least} to {most} {per}, by rank"
