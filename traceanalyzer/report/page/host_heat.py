"""Hosts by steps at a glance: how much longer than the median host each one's ranks need for what is their own."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.blame.step_parts import OWN_PARTS

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
    """The map of a job with several hosts and steps; `None` without.

    A host's time in a step is its ranks' median of compute, copies, idle time and exposed transfers: waits for others
    are not its own.
    """
    longer = _longer_pct(results)
    if longer is None or len(longer.columns) < 2 or longer.empty:
        return None
    order = longer.max(axis=1).sort_values(ascending=False, kind="stable").index[:MOST_STEPS]
    held = longer.loc[sorted(order)]
    top = max(float(held.max().max()), _LEAST_TOP_PCT)
    rows = tuple(_row(int(str(step)), own, top) for step, own in held.iterrows())
    return HostHeat(tuple(map(str, longer.columns)), rows, len(longer) - len(held))


def _longer_pct(results: Results) -> pd.DataFrame | None:
    """Per cent beyond the median host: steps by hosts; `None` where hosts or steps are not known."""
    if not {"step_needs", "ranks"} <= set(results):
        return None
    ranks, needs = results["ranks"].table, results["step_needs"].table
    if ranks.empty or needs.empty:
        return None
    hosts = ranks.dropna(subset="host").sort_values("rank").set_index("rank")["host"].astype("str")
    held = needs[needs["step"].notna() & ~needs["is_partial"].astype(bool) & needs["rank"].isin(hosts.index)]
    own = held[[*OWN_PARTS, "exposed_transfer_ns"]].astype("float64").sum(axis=1)
    table = own.groupby([held["step"].astype("int64"), held["rank"].map(hosts)]).median().unstack()  # noqa: PD010
    table = table.reindex(columns=hosts.unique())
    middle = table.median(axis=1)
    return 100 * table.sub(middle, axis=0).div(middle.where(middle > 0), axis=0)


def _row(step: int, own: pd.Series, top: float) -> StepRow:
    """Neighbours of equal level, and hosts no slower than the median, cost nothing."""
    width = 100.0 / len(own)
    cells = [
        Cell(place * width, width, round(_LEVELS * value / top) / _LEVELS, f"{host}, step {step}: {value:+.1f} %")
        for place, (host, value) in enumerate(own.items())
        if pd.notna(value) and _LEVELS * value >= top / 2
    ]
    worst = own.fillna(0).idxmax()
    return StepRow(step, tuple(cells), str(worst), float(own.fillna(0)[worst]))
