"""Hosts by steps at a glance: how much longer than the median host's each one's slowest rank needs for its own part."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import Results

MOST_STEPS = 40
"""Rows that are drawn; of more steps those in which a host is most unlike the others."""

_LEAST_TOP_PCT = 5.0
"""What is drawn darkest is at least this: noise stays pale."""

_LEVELS = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One host in one step; place and width in per cent of the row."""

    place: float
    width: float
    opacity: float
    label: str


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step over all hosts, and the host that needs most."""

    step: int
    cells: tuple[Cell, ...]
    worst: str
    worst_pct: float


@dataclass(frozen=True, slots=True)
class HostHeat:
    """The map: hosts in order of their first rank, steps in order, and how many steps are left out."""

    hosts: tuple[str, ...]
    rows: tuple[StepRow, ...]
    left_out: int


def host_heat(results: Results) -> HostHeat | None:
    """The map of a job with several hosts and steps, from `host_steps`; `None` without."""
    table: pd.DataFrame = results["host_steps"].to_frame() if "host_steps" in results else pd.DataFrame()
    if table.empty:
        return None
    by_step = {int(step): own.set_index("host") for step, own in table.groupby("step")}
    most = {step: own["longer_pct"].fillna(0).max() for step, own in by_step.items()}
    held = sorted(sorted(most, key=lambda step: -most[step])[:MOST_STEPS])
    top = max(*(most[step] for step in held), _LEAST_TOP_PCT)
    names = _with_racks(results["ranks"].table)
    rows = tuple(_row(step, by_step[step].reindex(list(names)), names, top) for step in held)
    return HostHeat(tuple(names), rows, len(by_step) - len(held))


def _with_racks(ranks: pd.DataFrame) -> dict[str, str]:
    """Hosts, in order of their first rank, and what they are called: with their rack where that is known."""
    known = ranks.dropna(subset="host").sort_values("rank").drop_duplicates("host")
    racks = known["rack"] if "rack" in known else pd.Series(None, index=known.index, dtype="object")
    return {
        str(host): f"{host}" if pd.isna(rack) else f"{host} (rack {rack})"
        for host, rack in zip(known["host"], racks, strict=True)
    }


def _row(step: int, own: pd.DataFrame, names: dict[str, str], top: float) -> StepRow:
    """Neighbours of equal level, and hosts no slower than the median, cost nothing."""
    width = 100.0 / len(own)
    longer = own["longer_pct"].astype("float64")
    cells = [
        Cell(
            place * width,
            width,
            round(_LEVELS * value / top) / _LEVELS,
            f"{names[str(host)]}, step {step}: {value:+.1f} %, slowest rank {own.loc[host, 'slowest_rank']}",
        )
        for place, (host, value) in enumerate(longer.items())
        if pd.notna(value) and _LEVELS * value >= top / 2
    ]
    worst = longer.fillna(0).idxmax()
    return StepRow(step, tuple(cells), str(worst), float(longer.fillna(0)[worst]))
