"""What is said of a capture without GPU work: what the CPUs did."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import text

NO_GPU_WORK = "No GPU work in this capture; here is the host."

_MOST_ROWS = 8

_FAR_APART = 2.0
"""Times in collectives of which one is this many times the other are no chance."""

_EXPLAINS = 0.5
"""What a late rank does longer is named when it is this part of what others spend longer in collectives."""


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
            made.append(f"{what} {_over_ranks(own, table['rank'].unique())}.")
    return made + _waiting(table)


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


def _over_ranks(own: pd.DataFrame, ranks: np.ndarray) -> str:
    """`Optimizer.step#AdamW.step: 1.2 to 1.5 ms a step, by rank`; which ranks, where not all of them do it."""
    times = own.assign(time_ns=_time_ns(own))
    name = times.groupby("name", sort=False)["time_ns"].mean().idxmax()
    rows = times[times["name"] == name]
    held = rows["time_ns"]
    least, most = text(float(held.min()), Unit.NS), text(float(held.max()), Unit.NS)
    some = sorted(set(rows["rank"].tolist()))
    where = f" on {numbered('rank', some)} alone" if len(some) < len(ranks) else ""
    shown = f"{short_name(str(name))}{where}"
    return f"{shown}: {most}{_of(own)}" if least == most else f"{shown}: {least} to {most}{_of(own)}, by rank"


def _of(table: pd.DataFrame) -> str:
    return " a step" if table["steps"].notna().all() else " in the capture"


def _waiting(table: pd.DataFrame) -> list[str]:
    """Which rank the others seem to wait for in the CPU's collectives, and what it does longer than they do.

    A collective of the CPU ends on no rank before the last one has come: who spends least in them came last.
    """
    times = table.assign(time_ns=_time_ns(table))
    ranks = times["rank"].unique()
    own = times[times["role"] == "collectives"].groupby("rank")["time_ns"].sum()
    if len(own) < 2 or len(own) < len(ranks) or own.max() < _FAR_APART * own.min():
        return []
    late, early = int(own.idxmin()), int(own.idxmax())
    apart_ns = own[early] - own[late]
    of_main = times[(times["role"] == "main") & (times["what"] != "collective")]
    by_name = of_main.pivot_table(index="name", columns="rank", values="time_ns", aggfunc="sum", fill_value=0.0)
    if late not in by_name:
        return []
    longer = by_name[late] - by_name.drop(columns=late).reindex(columns=own.index.drop(late), fill_value=0.0).median(
        axis=1
    )
    if longer.max() < _EXPLAINS * apart_ns:
        return []
    apart, more = (text(float(length), Unit.NS) for length in (apart_ns, longer.max()))
    said = (
        f"Rank {early} is {apart}{_of(table)} longer in collectives than rank {late}, for which it seems to wait there"
    )
    return [f"{said}: rank {late} takes {more} longer than others in {short_name(str(longer.idxmax()))}."]


def _time_ns(table: pd.DataFrame) -> pd.Series:
    """A step's time; the whole capture's where not all ranks have steps."""
    of_steps = table["steps"].notna().all()
    return table["host_per_step_ns" if of_steps else "host_ns"].astype("float64")
