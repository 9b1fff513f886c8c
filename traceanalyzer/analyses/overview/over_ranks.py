"""What the ranks' figures are on the whole: their mean, and who has least and most."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.names import HeadlineColumn, MfuColumn, OverRanksColumn, TimePartsColumn
from traceanalyzer.analyses.operators.mfu import Mfu
from traceanalyzer.analyses.overview.time_parts import EVERY, TimeParts
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.meaning.vocabulary import OPAQUE
from traceanalyzer.model.tables import floats, only, without_rows

if TYPE_CHECKING:
    from traceanalyzer.analyses.frames import Row

Figure = TimePartsColumn | HeadlineColumn | MfuColumn

_OF_ALL = "of_all_pct"


class OverRanks(Result[OverRanksColumn]):
    """One row for each figure: a mean step's length and its spread, and what share of it each part takes.

    Means are over the ranks of which it is known.
    """

    title: ClassVar[str] = "Figures over ranks"
    keys: ClassVar[tuple[str, ...]] = ("figure",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "figure": Column.text("A column of `time_parts`, `headline` or `mfu`.", written=Written.FIGURE),
        "ranks": Column.count("Ranks of which it is known.", is_compared=False),
        "mean_ns": Column.time("Mean over ranks; absent for shares.", adds=Adds.DERIVED),
        "least_ns": Column.time("Smallest; absent for shares.", adds=Adds.EXTREME),
        "most_ns": Column.time("Largest; absent for shares.", adds=Adds.EXTREME),
        "mean_pct": Column.share("Mean over ranks; absent for times."),
        "least_pct": Column.share("Smallest; absent for times.", adds=Adds.EXTREME),
        "most_pct": Column.share("Largest; absent for times.", adds=Adds.EXTREME),
        "least_rank": Column.ident("Rank that has least (the first of several)."),
        "most_rank": Column.ident("Rank that has most (the first of several)."),
        _OF_ALL: Column.share(
            "Of parts that cannot be divided further: 100 · time of all ranks / all their windows.", is_secondary=True
        ),
    }

    def of(self, figure: Figure) -> "Row[OverRanksColumn]":
        """The row of a figure; without values where it is not told."""
        rows = [row for row in self.rows() if row["figure"] == figure]
        return rows[0] if rows else self._absent().rows()[0]

    @classmethod
    def _absent(cls) -> "OverRanks":
        return cls(_table([{"figure": "", "ranks": 0}]))


def across(_parts: Mapping[int, pd.DataFrame], time_parts: TimeParts, headline: Headline, mfu: Mfu) -> OverRanks:
    """Compare the ranks, one of them alone as well."""
    if not len(headline):
        return OverRanks(without_rows(OverRanks.columns))
    parts: pd.DataFrame = time_parts.to_frame().set_index("rank")
    heads = headline.to_frame().set_index("rank")
    times: dict[Figure, pd.Series] = {"window_ns": parts["window_ns"], "step_std_ns": heads["step_std_ns"]}
    shares = {name: parts[name] for name in (*(part.share for part in EVERY), "not_computing_pct")}
    shares |= {"fused_pct": heads["fused_pct"], "overlap_pct": heads["overlap_pct"], "mfu_pct": mfu.by_rank()}
    rows = [_row(name, values, "ns") for name, values in times.items()]
    rows += [_row(name, values, "pct") for name, values in shares.items()]
    window = float(parts["window_ns"].sum())
    opaque = 100.0 * float(parts[OPAQUE.column].sum()) / window if window else None
    every = [{**row, _OF_ALL: opaque if row["figure"] == OPAQUE.share else None} for row in rows]
    return OverRanks(_table(every))


_DTYPES = {
    "figure": "str", "ranks": "int64", "least_rank": "Int64", "most_rank": "Int64",
    **{f"{what}_{unit}": "Float64" for what in ("mean", "least", "most") for unit in ("ns", "pct")}, _OF_ALL: "Float64",
}  # fmt: skip


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(
        {name: pd.array([row.get(name) for row in rows], dtype=dtype) for name, dtype in _DTYPES.items()}
    )
    return only(table, list(OverRanks.columns))


def _row(figure: str, values: pd.Series, unit: str) -> dict[str, Any]:
    numbers = floats(values)
    known = numbers[~np.isnan(numbers)]
    if not len(known):
        return {"figure": figure, "ranks": 0}
    ranks = values.index.to_numpy()
    return {
        "figure": figure,
        "ranks": len(known),
        f"mean_{unit}": float(known.mean()),
        f"least_{unit}": float(known.min()),
        "least_rank": int(ranks[np.nanargmin(numbers)]),
        f"most_{unit}": float(known.max()),
        "most_rank": int(ranks[np.nanargmax(numbers)]),
    }
