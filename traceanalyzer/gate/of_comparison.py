"""Gates on a comparison."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.analyses.doubts import reasons
from traceanalyzer.diff import Comparison, Side, joins, metrics
from traceanalyzer.diff.captures import Capture, Scale
from traceanalyzer.diff.joins import with_rank
from traceanalyzer.gate.grammar import (
    FAILED,
    INCONCLUSIVE,
    OF_RANKS,
    PASSED,
    Gate,
    Outcome,
    fails,
    how_many,
    judged,
    limit_text,
    not_available,
    shown,
    status_of,
    with_unit,
)
from traceanalyzer.gate.of_run import check_names, find, is_metric, lack_of_ranks, narrowed, qualified
from traceanalyzer.meaning.columns import Unit

# How a figure changes between two runs, and whether their repeats can tell that from noise.


@dataclass(frozen=True, slots=True)
class Change:
    """Of what is judged (each rank, or one value over all): means over repeats, and their difference.

    Attributes:
        gate: the condition.
        base: mean of the base's repeats.
        other: mean of the other run's repeats.
        by: the change, in the gate's unit; growth from nothing is infinite.
        margin: half the 95% interval of the change (Welch), in the gate's unit; infinite with one capture of a run, 0
            where both runs have the same values.
        repeats: captures of the base and of the other run.
    """

    gate: Gate
    base: pd.Series
    other: pd.Series
    by: pd.Series
    margin: pd.Series
    repeats: tuple[int, int]

    @classmethod
    def of(cls, gate: Gate, base: pd.DataFrame, other: pd.DataFrame) -> "Change":
        """From values by what is judged (index) and repeat (columns)."""
        one, two = base.mean(axis=1).astype(float), other.mean(axis=1).astype(float)
        repeats = (base.shape[1], other.shape[1])
        pairs = zip(base.to_numpy(dtype=float), other.to_numpy(dtype=float), strict=True)
        margins = pd.Series([_margin(sorted(own), sorted(others)) for own, others in pairs], index=one.index)
        return cls(gate, one, two, _in_unit(gate, two - one, one), _in_unit(gate, margins, one), repeats)

    @property
    def failing(self) -> pd.Series:
        """Where it is more than is allowed, and more than noise where the gate asks for that."""
        beyond = fails(self.gate, self.by)
        return beyond & self.is_beyond_noise if self.gate.is_significant else beyond

    @property
    def is_beyond_noise(self) -> pd.Series:
        """Where the change is more than noise: p < 0.05."""
        return (self.by.abs() > self.margin).astype(bool)

    @property
    def status(self) -> str:
        """A gate of significance passes only where the noise cannot hide a change that would fail it."""
        failing = self.failing
        if status_of(self.gate, failing) == FAILED or not self.gate.is_significant:
            return status_of(self.gate, failing)
        limit, sign = abs(self.gate.number), 1 if self.gate.grows else -1
        is_sharp = (self.margin <= limit) | (sign * self.by + self.margin <= limit)
        clear = ~fails(self.gate, self.by) & is_sharp
        return PASSED if (clear.any() if self.gate.scope == "all ranks" else clear.all()) else INCONCLUSIVE

    @property
    def sentence(self) -> str:
        """What is so of it, in words that say on which side of the limit it lies."""
        gate, status = self.gate, self.status
        allowed = f"the {with_unit(f'{abs(gate.number):.4g}', gate.unit)} allowed"
        if gate.scope in OF_RANKS:
            failing = self.failing if status == FAILED else fails(gate, self.by)
            how = "grows" if gate.grows else "falls"
            summary = f"{how_many(failing, 'ranks')} it {how} by more than {allowed}, at the worst it {self._moved}"
        else:
            both = f"{shown_value(gate, self.base.iloc[0])} → {shown_value(gate, self.other.iloc[0])}"
            side = "more than" if fails(gate, self.by).iloc[0] else "within"
            summary = f"{gate.scope} {self._moved} ({both}), {side} {allowed}"
        return "; ".join(text for text in (summary, self._of_noise(status)) if text)

    @property
    def _moved(self) -> str:
        worst = self.by.max() if self.gate.grows else self.by.min()
        if not worst:
            return "does not change"
        return f"{'grows' if worst > 0 else 'falls'} by {with_unit(f'{abs(worst):.4g}', self.gate.unit)}"

    def _of_noise(self, status: str) -> str:
        captures = f"{self.repeats[0]} {'capture' if self.repeats[0] == 1 else 'captures'} against {self.repeats[1]}"
        if np.isinf(self.margin).any():
            text = f"{captures} cannot tell a change from noise: record three or more of each"
            return text if status == INCONCLUSIVE else ""
        if not self.margin.any():
            return ""
        noise = f"± {with_unit(f'{self.margin.max():.3g}', self.gate.unit)}"
        if status == INCONCLUSIVE:
            return f"{captures} tell changes from noise only beyond {noise}: record more, or quieter ones"
        if status == FAILED and not self.is_beyond_noise[self.failing].all():
            return f"of {captures} that is within the noise, {noise}: 'significant' behind the limit fails on more only"
        return f"{captures}, {noise}"


def _margin(base: list[float], other: list[float]) -> float:
    """Half the 95% interval of the difference; runs of the same values differ by nothing."""
    if base == other:
        return 0.0
    return metrics.margin(base, other) if min(len(base), len(other)) > 1 else float("inf")


def _in_unit(gate: Gate, difference: pd.Series, base: pd.Series) -> pd.Series:
    """A difference in the gate's unit: percent of the base, points, or its own."""
    if gate.unit != "%" or gate.quantity is Unit.PCT:
        return difference / (1.0 if gate.unit == "pp" else gate.factor)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (100 * difference / base.abs()).where(difference != 0, 0.0)


def shown_value(gate: Gate, value: float) -> str:
    """A value beside its change: in the unit of a percentage or of the column where the change is in percent."""
    if gate.unit == "pp":
        return f"{value:,.4g}%"
    if gate.unit == "%":
        unit = {"ns": (1e6, "ms"), "bytes": (1e9, "GB")}.get(str(gate.quantity or ""), (1.0, ""))
        return f"{value / unit[0]:,.4g} {unit[1]}".strip()
    return shown(gate, value)


# A gate's figure in every repeat of the runs that it looks at.


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
            return f"{side.label} has no value for it" + (
                f" in {silent} of {len(values)} captures" if silent > 1 else ""
            )
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
    frame = capture.of_steps(frame) if "step" in known.keys else frame
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


# Gates on a comparison: how much a figure may change against the base, per step, and plain limits on the others.


def check_comparison(
    gates: Sequence[Gate], comparison: Comparison, wanted: Collection[int] | None = None
) -> list[Outcome]:
    """Evaluate gates on every run but the base.

    Figures are the comparison's: sums per optimizer step (or per token), means over repeats. `any rank` and
    `all ranks` compare a rank with the same rank of the base; the others compare their value over ranks. A gate that
    would pass cannot be judged when ranks of a run are missing, nor can one on a figure that a run's report marks.

    Args:
        gates: what to check.
        comparison: the runs.
        wanted: ranks that the user asked for; `None` is all.

    Raises:
        UsageError: a gate names a figure that does not exist.
    """
    check_names(gates, of_comparison=True)
    made = []
    for gate in gates:
        for side in comparison.others:
            sides = (side,) if gate.op else (comparison.base, side)
            lack, doubts = _lack(sides, wanted), _doubts(gate, sides)
            outcomes = _check(gate, comparison.base, side, comparison.fairness.scale)
            made += [qualified(gate, outcome, lack, doubts) for outcome in outcomes]
    return made


def _lack(sides: Sequence[Side], wanted: Collection[int] | None) -> str | None:
    """Which ranks of which run are missing."""
    for side in sides:
        for capture in side.captures:
            ranks = capture.table("ranks")
            lack = lack_of_ranks(ranks, wanted, (), capture.table("integrity")) if ranks is not None else None
            if lack:
                return f"{side.label}: {lack}"
    return None


def _doubts(gate: Gate, sides: Sequence[Side]) -> list[str]:
    """Why reports of the runs mark the gate's figure, each reason once."""
    source = metrics.BY_NAME[gate.column].source if is_metric(gate) else find(gate, of_comparison=True)[0]
    of_captures = ((side.label, reasons(capture.table("integrity"))) for side in sides for capture in side.captures)
    return list(dict.fromkeys(f"{run}: {why}" for run, own in of_captures for why in own.get(source, ())))


def _check(gate: Gate, base: Side, side: Side, scale: Scale) -> list[Outcome]:
    sides = (side,) if gate.op else (base, side)
    found = figures_of(gate, sides, scale)
    if isinstance(found, str):
        return [not_available(gate, side.label, found)]
    return [_judge(gate, figures, side.label) for figures in found]


def _judge(gate: Gate, figures: Figures, run: str) -> Outcome:
    whole = figures.known() if gate.is_optional else figures
    if not whole.is_whole:
        return not_available(gate, run, figures.lack, figures.case)
    of_scope = [_over(gate, own) for own in whole.sides]
    if gate.op:
        return _limit(gate, of_scope[0], whole, run)
    return _change(gate, of_scope[0], of_scope[1], figures.case, run)


def _over(gate: Gate, values: pd.DataFrame) -> pd.DataFrame:
    """What is judged, by repeat: each rank's value, or one over all ranks."""
    return values if gate.scope in OF_RANKS else pd.DataFrame({gate.scope: getattr(values, gate.scope)()}).T


def _limit(gate: Gate, values: pd.DataFrame, figures: Figures, run: str) -> Outcome:
    means = values.mean(axis=1).astype(float)
    failing = fails(gate, means)
    rows = [{"rank": rank, gate.column: float(value)} for rank, value in figures.sides[0].mean(axis=1).items()]
    return judged(gate, run, status_of(gate, failing), limit_text(gate, means, failing), rows, failing, figures.case)


def _change(gate: Gate, base: pd.DataFrame, other: pd.DataFrame, case: str, run: str) -> Outcome:
    change = Change.of(gate, base, other)
    rows = [
        {
            "rank": rank,
            f"base_{gate.column}": float(change.base[rank]),
            f"other_{gate.column}": float(change.other[rank]),
            "change": with_unit(f"{by:+.4g}", gate.unit),
        }
        for rank, by in change.by.items()
    ]
    return judged(gate, run, change.status, change.sentence, rows, change.failing, case)
