"""A gate's figure in every repeat of the runs that it looks at."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.diff import Side, joins, metrics
from traceanalyzer.diff.captures import Capture
from traceanalyzer.diff.scales import Scale
from traceanalyzer.diff.sums import with_rank
from traceanalyzer.gate.figures import find, is_metric
from traceanalyzer.gate.grammar import Gate
from traceanalyzer.gate.of_run import narrowed


@dataclass(frozen=True, slots=True)
class Figures:
    """One case of a gate: a row of a table, or the figure itself.

    Attributes:
        case: the row's keys; empty for a figure of the run.
        sides: by run, base first, the value of every rank (index) in every repeat (columns); NA where it is not known.
    """

    case: str
    sides: tuple[pd.DataFrame, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it is known of every rank of every repeat, and of the same ranks of both runs."""
        first = self.sides[0].index
        return len(first) > 0 and all(set(own.index) == set(first) and own.notna().all(axis=None) for own in self.sides)

    @property
    def lack(self) -> str:
        """Why it is not whole."""
        unknown = sorted({str(rank) for own in self.sides for rank in own.index[own.isna().any(axis=1)]})
        if unknown:
            return f"not known of every repeat of rank {', '.join(unknown)}"
        return "not for every rank of both runs" if all(len(own) for own in self.sides) else "not for both runs"

    def known(self) -> "Figures":
        """Only the ranks whose value is known in all runs and repeats."""
        whole = [own.dropna() for own in self.sides]
        shared = [rank for rank in whole[0].index if all(rank in own.index for own in whole)]
        return Figures(self.case, tuple(own.loc[shared] for own in whole))


def figures_of(gate: Gate, sides: Sequence[Side], scale: Scale) -> list[Figures] | str:
    """The gate's figure by case, or why there is none."""
    read = _of_metric if is_metric(gate) else _of_table
    of_sides = []
    for side in sides:
        values = [read(gate, capture, scale) for capture in side.captures]
        silent = sum(value is None for value in values)
        if silent and not (gate.is_optional and silent < len(values)):
            return f"{side.label} does not tell it" + (f" in {silent} of {len(values)} captures" if silent > 1 else "")
        of_sides.append([value for value in values if value is not None])
    cases = dict.fromkeys(case for own in of_sides for value in own for case in value.columns)
    if not cases:
        return "no run has a row for it"
    is_sum = not is_metric(gate) and _is_sum(gate)
    return [Figures(case, tuple(_case(own, case, is_sum=is_sum) for own in of_sides)) for case in cases]


def _case(values: Sequence[pd.DataFrame], case: str, *, is_sum: bool) -> pd.DataFrame:
    """A case's values by rank and repeat; what adds up and has no row took nothing."""
    columns = []
    for value in values:
        own = value[case] if case in value else pd.Series(index=value.index, dtype="Float64")
        columns.append(own.fillna(0.0) if is_sum and case not in value else own)
    return pd.concat(columns, axis=1, keys=range(len(columns))).astype("Float64")


def _of_metric(gate: Gate, capture: Capture, scale: Scale) -> pd.DataFrame | None:
    values = metrics.measured(capture, metrics.BY_NAME[gate.column], scale)
    return None if values is None else values.to_frame("")


def _is_sum(gate: Gate) -> bool:
    analysis, column = find(gate, of_comparison=True)
    return ANALYSES[analysis].result.columns[column].is_sum


def _of_table(gate: Gate, capture: Capture, scale: Scale) -> pd.DataFrame | None:
    """Ranks × cases of a column of a table: sums per step, anything else as it is; `None` where it is not told."""
    analysis, column = find(gate, of_comparison=True)
    frame: pd.DataFrame | None = capture.table(analysis)
    known = ANALYSES[analysis].result
    if frame is None or column not in frame or (not capture.is_exact and "step" not in frame):
        return None  # an empty table too: whether there is nothing, or nothing was recorded, it does not say
    frame = with_rank(frame)
    if "step" in frame:
        frame = frame[frame["step"].isin(capture.steps)] if capture.steps else frame[frame["step"].isna()]
    ranks = _ranks(capture, frame)
    rows = narrowed(frame, gate)
    if rows.empty:
        return pd.DataFrame(index=ranks)
    keys = [key for key in joins.joined_by(known) if key != "step"]
    cases = rows[keys].astype("object").fillna("not known").astype("str").agg(", ".join, axis=1) if keys else ""
    numbers = pd.to_numeric(rows[column], errors="coerce").astype("Float64")
    groups = rows.assign(**{_CASE: cases, _VALUE: numbers}).groupby(["rank", _CASE], sort=False)[_VALUE]
    if not known.columns[column].is_sum:
        return _wide(groups.mean(), ranks)
    # A sum with an unknown part is unknown; a rank without the row took nothing.
    sums = groups.sum().where(groups.count() == groups.size()) / scale.divisor(capture)
    return _wide(sums, ranks).where(_wide(groups.size(), ranks).notna(), 0.0)


def _wide(values: pd.Series, ranks: list[int]) -> pd.DataFrame:
    """Ranks × cases, absent where there is no row."""
    made: pd.DataFrame = values.unstack(_CASE).reindex(ranks)  # noqa: PD010 - of an index, which pivot_table has not
    return made


_CASE, _VALUE = "_case", "_value"


def _ranks(capture: Capture, frame: pd.DataFrame) -> list[int]:
    """All ranks of the capture, also those without a row; of a table of the whole run its one row."""
    all_ranks = capture.table("breakdown")
    known = set(all_ranks["rank"]) if all_ranks is not None else set()
    own = list(dict.fromkeys(frame["rank"]))
    return sorted(known) if known and set(own) <= known else own
