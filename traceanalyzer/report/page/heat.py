"""Many ranks or hosts at a glance: heat maps."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.blame.rank_sets import Places
from traceanalyzer.analyses.overview import UnlikeRanks
from traceanalyzer.findings.run import in_words
from traceanalyzer.meaning.columns import Unit, numbers, per_cent, text
from traceanalyzer.meaning.vocabulary import Part, numbered
from traceanalyzer.report.words import Split

# Many ranks at a glance: a heat map of ranks by parts, and the ranks that are unlike the others.


MANY_RANKS = 32
"""From here on the page shows a heat map, and bars only of ranks unlike the others and of one in the middle."""

MOST_BARS = 12

_LEVELS = 20


@dataclass(frozen=True, slots=True)
class Run:
    """Ranks beside each other of about the same share; places in per cent of the row's width."""

    place: float
    width: float
    opacity: float
    label: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One part over all ranks."""

    part: Part
    runs: tuple[Run, ...]
    low: float
    high: float

    @property
    def span(self) -> str:
        """`65.0 to 80.7 %`, or one of them where they read alike."""
        low, high = per_cent(self.low), per_cent(self.high)
        return f"{high} %" if low == high else f"{low} to {high} %"


@dataclass(frozen=True, slots=True)
class Difference:
    """One part of a set's time, the median rank's, and how far they are apart."""

    part: Part
    ns: float
    median_ns: float
    away_ns: float

    @property
    def times(self) -> tuple[str, str]:
        """Its time, and the median rank's, with their units."""
        return text(self.ns, Unit.NS), text(self.median_ns, Unit.NS)


@dataclass(frozen=True, slots=True)
class Unlike:
    """Ranks that differ from the median by about as much as each other, in words, and by what: the largest first."""

    who: str
    differences: tuple[Difference, ...]


def heat_rows(split: Split) -> list[HeatRow]:
    """A row for each part that any rank has; opacity goes from 0 % to the largest share of any part."""
    table = split.table.set_index("rank")
    shares = [(part, table[part.share].astype("float64")) for part in split.parts if table[part.column].any()]
    top = max([float(share.max()) for _, share in shares], default=0.0)
    return [_row(part, share, max(top, 1e-9)) for part, share in shares]


def unlike(split: Split, unlike_ranks: UnlikeRanks, places: Places | None) -> list[Unlike]:
    """The ranks of `unlike_ranks`, those that differ by about as much as a set: what differs by most time first."""
    parts = {part.column: part for part in split.parts}
    by_ranks: dict[tuple[int, ...], dict[str, Difference]] = {}
    for row in unlike_ranks.rows():
        ns, median_ns = row["alike_ns"], row["median_ns"]
        difference = Difference(parts[row["part"]], ns, median_ns, row["alike_away_ns"])
        by_ranks.setdefault(numbers(row["alike_ranks"]), {}).setdefault(row["part"], difference)
    every = split.table["rank"].tolist()
    found = []
    for ranks, own in by_ranks.items():
        who = numbered("rank", ranks) if places is None else in_words(ranks, every, places)
        found.append(Unlike(who, tuple(sorted(own.values(), key=lambda one: -one.away_ns))))
    return sorted(found, key=lambda item: -item.differences[0].away_ns)


def shown(split: Split, unlike_ranks: UnlikeRanks) -> pd.DataFrame:
    """The rows of which bars are drawn: all ranks, or of many those unlike the others beside the one in the middle."""
    table = split.table
    if len(table) < MANY_RANKS:
        return table
    ranks = list(dict.fromkeys(unlike_ranks.table["rank"].tolist()))[:MOST_BARS]
    if not ranks:
        ranks = [
            int(table.loc[table["compute_ns"].idxmin(), "rank"]),
            int(table.loc[table["compute_ns"].idxmax(), "rank"]),
        ]
    return table[table["rank"].isin([*ranks, middle(split)])]


def middle(split: Split) -> int:
    """The rank whose share of compute is the median's, or next to it: what the outliers are to be compared with."""
    compute = split.table.set_index("rank")["compute_pct"].astype("float64")
    return int((compute - compute.median()).abs().idxmin())


def _row(part: Part, share: pd.Series, top: float) -> HeatRow:
    """Ranks of equal level beside each other become one rectangle: a page of 1,024 ranks stays small."""
    level = (_LEVELS * share / top).round().astype(int)
    start = level.ne(level.shift()).cumsum()
    count, width = len(share), 100.0 / len(share)
    runs = []
    place = 0
    for _, own in share.groupby(start.to_numpy()):
        ranks = f"rank {own.index[0]}" if len(own) == 1 else f"ranks {own.index[0]} to {own.index[-1]}"
        spread = f"{own.min():.1f} %" if len(own) == 1 else f"{own.min():.1f} to {own.max():.1f} %"
        opacity = int(level.iloc[place]) / _LEVELS
        runs.append(Run(place * width, len(own) * width, opacity, f"{part.label}, {ranks}: {spread}"))
        place += len(own)
    assert place == count, "every rank has its place"
    return HeatRow(part, tuple(runs), float(share.min()), float(share.max()))


# Hosts by steps at a glance: how much longer than the median host's each one's slowest rank needs for its own part.


MOST_STEPS = 40
"""Rows that are drawn; of more steps those in which a host is most unlike the others."""

_LEAST_TOP_PCT = 5.0
"""What is drawn darkest is at least this: noise stays pale."""

_HOST_HEAT_LEVELS = 20


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
    rows = tuple(_host_heat_row(step, by_step[step].reindex(list(names)), names, top) for step in held)
    return HostHeat(tuple(names), rows, len(by_step) - len(held))


def _with_racks(ranks: pd.DataFrame) -> dict[str, str]:
    """Hosts, in order of their first rank, and what they are called: with their rack where that is known."""
    known = ranks.dropna(subset="host").sort_values("rank").drop_duplicates("host")
    racks = known["rack"] if "rack" in known else pd.Series(None, index=known.index, dtype="object")
    return {
        str(host): f"{host}" if pd.isna(rack) else f"{host} (rack {rack})"
        for host, rack in zip(known["host"], racks, strict=True)
    }


def _host_heat_row(step: int, own: pd.DataFrame, names: dict[str, str], top: float) -> StepRow:
    """Neighbours of equal level, and hosts no slower than the median, cost nothing."""
    width = 100.0 / len(own)
    longer = own["longer_pct"].astype("float64")
    cells = [
        Cell(
            place * width,
            width,
            round(_HOST_HEAT_LEVELS * value / top) / _HOST_HEAT_LEVELS,
            f"{names[str(host)]}, step {step}: {value:+.1f} %, slowest rank {own.loc[host, 'slowest_rank']}",
        )
        for place, (host, value) in enumerate(longer.items())
        if pd.notna(value) and _HOST_HEAT_LEVELS * value >= top / 2
    ]
    worst = longer.fillna(0).idxmax()
    return StepRow(step, tuple(cells), str(worst), float(longer.fillna(0)[worst]))
