"""Hosts by steps at a glance: how much longer than the median host's each one's slowest rank needs for its own part."""

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


@dataclass(frozen=True, slots=True)
class _Slowest:
    """Of each host's slowest rank, steps by hosts: per cent beyond the median host's, and which rank it is."""

    longer_pct: pd.DataFrame
    rank: pd.DataFrame


def host_heat(results: Results) -> HostHeat | None:
    """The map of a job with several hosts and steps; `None` without.

    A host's time in a step is that of its slowest rank, for which the others wait: compute, copies, idle time and
    exposed transfers. Waits for others are not its own.
    """
    slowest = _slowest(results)
    if slowest is None or len(slowest.longer_pct.columns) < 2 or slowest.longer_pct.empty:
        return None
    longer = slowest.longer_pct
    order = longer.max(axis=1).sort_values(ascending=False, kind="stable").index[:MOST_STEPS]
    held = longer.loc[sorted(order)]
    top = max(float(held.max().max()), _LEAST_TOP_PCT)
    names = _with_racks(results["ranks"].table)
    rows = tuple(_row(int(str(step)), own, slowest.rank.loc[step], names, top) for step, own in held.iterrows())
    return HostHeat(tuple(map(str, longer.columns)), rows, len(longer) - len(held))


def _slowest(results: Results) -> _Slowest | None:
    """`None` where hosts or steps are not known."""
    if not {"step_needs", "ranks"} <= set(results):
        return None
    ranks, needs = results["ranks"].table, results["step_needs"].table
    if ranks.empty or needs.empty:
        return None
    hosts = ranks.dropna(subset="host").sort_values("rank").set_index("rank")["host"].astype("str")
    held = needs[needs["step"].notna() & ~needs["is_partial"].astype(bool) & needs["rank"].isin(hosts.index)]
    own = held[[*OWN_PARTS, "exposed_transfer_ns"]].astype("float64").sum(axis=1)
    table = pd.DataFrame(
        {"step": held["step"].astype("int64"), "host": held["rank"].map(hosts), "rank": held["rank"], "ns": own}
    )
    table = table.sort_values(["ns", "rank"], ascending=[False, True], kind="stable")
    table = table.drop_duplicates(["step", "host"]).set_index(["step", "host"]).sort_index()
    times, who = (table[name].unstack().reindex(columns=hosts.unique()) for name in ("ns", "rank"))  # noqa: PD010
    middle = times.median(axis=1)
    return _Slowest(100 * times.sub(middle, axis=0).div(middle.where(middle > 0), axis=0), who)


def _with_racks(ranks: pd.DataFrame) -> dict[str, str]:
    """Hosts and what they are called: with their rack where that is known."""
    known = ranks.dropna(subset="host").drop_duplicates("host")
    racks = known["rack"] if "rack" in known else pd.Series(None, index=known.index, dtype="object")
    return {
        str(host): f"{host}" if pd.isna(rack) else f"{host} (rack {rack})"
        for host, rack in zip(known["host"], racks, strict=True)
    }


def _row(step: int, own: pd.Series, slowest: pd.Series, names: dict[str, str], top: float) -> StepRow:
    """Neighbours of equal level, and hosts no slower than the median, cost nothing."""
    width = 100.0 / len(own)
    cells = [
        Cell(
            place * width,
            width,
            round(_LEVELS * value / top) / _LEVELS,
            f"{names[str(host)]}, step {step}: {value:+.1f} %, slowest rank {slowest[host]:.0f}",
        )
        for place, (host, value) in enumerate(own.items())
        if pd.notna(value) and _LEVELS * value >= top / 2
    ]
    worst = own.fillna(0).idxmax()
    return StepRow(step, tuple(cells), str(worst), float(own.fillna(0)[worst]))
