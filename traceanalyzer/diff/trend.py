"""Baselines over time: what is kept, since when, and how their figures went."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from traceanalyzer.diff import fairness, metrics
from traceanalyzer.diff.captures import STEP, Side
from traceanalyzer.diff.sources import BASELINES, baseline_path, read_baseline
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.meaning.columns import Unit

COLUMNS = {
    "metric": "Figure; its name ends in its unit.",
    "baseline": "Name of the baseline.",
    "saved": "When it was saved (UTC); absent for baselines of versions that did not note it.",
    "value": "Mean over ranks and repeats.",
    "std": "Sample standard deviation of the repeats; absent with fewer than two.",
    "repeats": "Captures in it that tell the figure.",
    "change_pct": "Difference to the baseline before it as percent of that one's value; absent for percentages.",
    "change_pct_points": "The same of a percentage, in percentage points.",
}

FIGURES: tuple[str, ...] = (
    "step_ns",
    "exposed_comm_pct",
    "idle_pct",
    "overlap_pct",
    "tokens_per_s",
    "peak_reserved_bytes",
)
"""Those that are shown unless others are named."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One baseline; `why_not` says why it cannot be read, and then it has no side."""

    name: str
    saved: str | None
    side: Side | None
    why_not: str | None = None


def kept(folder: Path = BASELINES, names: Sequence[str] = ()) -> list[Kept]:
    """The baselines of a folder, or the named ones: the oldest first, those without a date before all.

    Raises:
        InputError: a named one is not there.
    """
    paths = [baseline_path(name, folder) for name in names] or sorted(folder.glob("*.json"))
    return sorted((_kept(path, is_named=bool(names)) for path in paths), key=lambda one: one.saved or "")


def _kept(path: Path, *, is_named: bool) -> Kept:
    try:
        saved, side = read_baseline(path.stem, path.parent)
    except InputError as error:
        if is_named:
            raise
        return Kept(path.stem, None, None, str(error))
    return Kept(path.stem, saved, side)


def trend(baselines: Sequence[Kept], figures: Sequence[str] = FIGURES) -> pd.DataFrame:
    """A row for each figure and baseline, in their order, with `COLUMNS`; figures that none tells are left out.

    Raises:
        UsageError: a figure does not exist.
    """
    unknown = [name for name in figures if name not in metrics.BY_NAME]
    if unknown:
        raise UsageError(f"no figure is called {unknown[0]!r}; there are {', '.join(metrics.BY_NAME)}")
    sides = [Side.of(one.name, one.side.captures) for one in baselines if one.side is not None]
    table = metrics.table(sides, STEP, [metrics.BY_NAME[name] for name in figures])
    table = table.rename(columns={"run": "baseline"}).drop(columns=["change_pct", "change_pct_points"])
    table["saved"] = table["baseline"].map({one.name: one.saved for one in baselines})
    table["repeats"] = table["values"].map(len)
    before = table.groupby("metric")["value"].transform(lambda values: values.ffill().shift())
    is_share = table["metric"].map(lambda name: metrics.BY_NAME[name].unit is Unit.PCT).astype(bool)
    change = (table["value"] - before).astype("Float64")
    table["change_pct"] = (100 * change / before.where(before != 0)).mask(is_share)
    table["change_pct_points"] = change.where(is_share)
    return table[list(COLUMNS)].convert_dtypes()


def doubts(baselines: Sequence[Kept]) -> tuple[str, ...]:
    """Why the figures should not be put beside each other; none where the baselines did the same work."""
    sides = [one.side for one in baselines if one.side is not None]
    return fairness.judge(sides).refusals if len(sides) > 1 else ()
