"""What becomes of a gate: its figure held against the limit, or against the base and the noise of repeats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.diff import metrics
from traceanalyzer.gate.grammar import OF_RANKS, Gate, with_unit
from traceanalyzer.meaning.columns import Unit, in_a_line

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

UNKNOWN = "cannot be judged"
"""The figure is not there, or the report marks it as doubtful."""

INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One gate on one run.

    Attributes:
        gate: its text: the condition that must not hold.
        run: the run's name.
        status: `passed`, `failed`, `cannot be judged` (which fails too), `skipped` (not available, and optional) or
            `inconclusive` (the repeats cannot tell, or there are none).
        message: one sentence with the figure and the limit.
        rows: the rows that failed; for a gate over ranks those that it was computed from.
        case: which row of the table, where each of them is judged by itself.
    """

    gate: str
    run: str
    status: str
    message: str
    rows: tuple[Mapping[str, Any], ...] = ()
    case: str = ""

    @property
    def name(self) -> str:
        """The gate and its case, without figures: the same in every build, whatever came out."""
        return f"fails if {self.gate}" + (f" [{self.case}]" if self.case else "")


@dataclass(frozen=True, slots=True)
class Figures:
    """One case of a gate: a row of a table by rank, or the figure itself.

    Attributes:
        case: the row's keys; empty for a figure of the run.
        sides: by run, base first, the values by row (index; in a comparison a rank) and repeat (columns).
        keys: what names each row of a single run; ranks name those of a comparison.
    """

    case: str
    sides: tuple[pd.DataFrame, ...]
    keys: tuple[Mapping[str, Any], ...] = ()

    def key(self, row: Any) -> Mapping[str, Any]:
        """Rank, step and further keys of a row."""
        return self.keys[row] if self.keys else {"rank": row}

    @property
    def is_whole(self) -> bool:
        """Whether it is known of every rank of every repeat, and of the same ranks of both runs."""
        first = self.sides[0].index
        return len(first) > 0 and all(set(own.index) == set(first) and own.notna().all(axis=None) for own in self.sides)

    @property
    def lack(self) -> str:
        """Why it is not whole."""
        unknown = [self.key(row) for own in self.sides for row in own.index[own.isna().any(axis=1)]]
        if unknown:
            ranks = sorted({str(key["rank"]) for key in unknown if "rank" in key})
            return "not known" + (f" for every repeat of rank {', '.join(ranks)}" if ranks else "")
        return "not for every rank of both runs" if all(len(own) for own in self.sides) else "not for both runs"

    def known(self) -> "Figures":
        """Only the rows whose value is known in all runs and repeats."""
        whole = [own.dropna() for own in self.sides]
        shared = [row for row in whole[0].index if all(row in own.index for own in whole)]
        return replace(self, sides=tuple(own.loc[shared] for own in whole))


def not_available(gate: Gate, run: str, why: str, case: str = "") -> Outcome:
    """The gate cannot be evaluated: it fails, unless it is optional."""
    status = SKIPPED if gate.is_optional else UNKNOWN
    return Outcome(gate.text, run, status, f"{_name(gate, case)} is not available: {why}", (), case)


def judge(gate: Gate, figures: Figures, run: str) -> Outcome:
    """The gate's outcome: of a change `figures` have two sides."""
    whole = figures.known() if gate.is_optional else figures
    if not whole.is_whole:
        return not_available(gate, run, figures.lack, figures.case)
    # Each rank's value, or one over all ranks, by repeat.
    values = [own if gate.scope in OF_RANKS else pd.DataFrame({gate.scope: getattr(own, gate.scope)()}).T
              for own in whole.sides]  # fmt: skip
    name = (
        _name(gate, figures.case) if gate.scope in (*OF_RANKS, "mean") else f"{gate.scope} {_name(gate, figures.case)}"
    )
    if gate.op:
        means = values[0].mean(axis=1).astype(float)
        failing = gate.fails(means)
        status, text = status_of(gate, failing), _limit_text(gate, means, failing)
        shown = {row: {**whole.key(row), gate.column: float(value)}
                 for row, value in whole.sides[0].mean(axis=1).items()}  # fmt: skip
    else:
        change = Change.of(gate, *values)
        failing, status, text = change.failing, change.status, change.sentence
        shown = {row: change.row(row) for row in change.by.index}
    rows = [row for label, row in shown.items() if gate.scope not in OF_RANKS or failing[label]]
    return Outcome(gate.text, run, status, f"{name} {text}", tuple(rows) if status == FAILED else (), figures.case)


def status_of(gate: Gate, failing: pd.Series) -> str:
    """With `all ranks` it fails only where every one does."""
    return FAILED if (failing.all() if gate.scope == "all ranks" else failing.any()) else PASSED


def qualified(gate: Gate, outcome: Outcome, lack: str | None, doubts: Sequence[str]) -> Outcome:
    """What becomes of a gate, whatever it is on: a figure that the report doubts is not judged.

    Args:
        gate: the condition.
        outcome: of the figure as it stands.
        lack: which ranks it does not see; of a figure that passes without them nothing is known.
        doubts: why the report marks the figure.
    """
    if lack and outcome.status == PASSED:
        return not_available(gate, outcome.run, f"{lack}; over the others {outcome.message}", outcome.case)
    status = outcome.status if outcome.status == SKIPPED or not doubts else UNKNOWN
    why = f"in doubt, so it {UNKNOWN}: {' '.join(doubts)}" if doubts else None
    return replace(outcome, status=status, message="; ".join(text for text in (outcome.message, lack, why) if text))


def _name(gate: Gate, case: str) -> str:
    return f"{gate.metric} ({case})" if case else gate.metric


_LIMITS = {
    ">": "limit", ">=": "must be below", "<": "minimum", "<=": "must be above", "==": "must not be", "!=": "must be",
}  # fmt: skip


def _limit_text(gate: Gate, values: pd.Series, failing: pd.Series) -> str:
    """`is 32.8% (limit 5%)`; of ranks the range, and how many fail."""
    assert gate.op is not None
    span = " to ".join(dict.fromkeys(gate.shown(value) for value in (values.min(), values.max())))
    text = f"is {span} ({_LIMITS[gate.op]} {gate.shown(gate.number * gate.factor)})"
    return f"{text}, {_how_many(failing)}" if gate.scope in OF_RANKS else text


def _how_many(failing: pd.Series) -> str:
    return f"violated by {int(failing.sum()) or 'none'} of {len(failing)}"


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
        pairs = zip(base.to_numpy(dtype=float), other.to_numpy(dtype=float), strict=True)
        margins = pd.Series([_margin(sorted(own), sorted(others)) for own, others in pairs], index=one.index)
        repeats = (base.shape[1], other.shape[1])
        return cls(gate, one, two, _in_unit(gate, two - one, one), _in_unit(gate, margins, one), repeats)

    def row(self, label: Any) -> dict[str, Any]:
        """What is shown of a rank, or of the value over all."""
        column = self.gate.column
        change = with_unit(f"{self.by[label]:+.4g}", self.gate.unit)
        values = {f"base_{column}": float(self.base[label]), f"other_{column}": float(self.other[label])}
        return {"rank": label, **values, "change": change}

    @property
    def failing(self) -> pd.Series:
        """Where it is more than is allowed, and more than noise where the gate asks for that."""
        beyond = self.gate.fails(self.by)
        return beyond & self.is_beyond_noise if self.gate.is_significant else beyond

    @property
    def is_beyond_noise(self) -> pd.Series:
        """Where the change is more than noise: p < 0.05."""
        return (self.by.abs() > self.margin).astype(bool)

    @property
    def status(self) -> str:
        """A gate of significance passes only where the noise cannot hide a change that would fail it."""
        status = status_of(self.gate, self.failing)
        if status == FAILED or not self.gate.is_significant:
            return status
        limit, sign = abs(self.gate.number), 1 if self.gate.grows else -1
        is_sharp = (self.margin <= limit) | (sign * self.by + self.margin <= limit)
        clear = ~self.gate.fails(self.by) & is_sharp
        return PASSED if (clear.any() if self.gate.scope == "all ranks" else clear.all()) else INCONCLUSIVE

    @property
    def sentence(self) -> str:
        """`changed by +10% (20 → 22 ms, limit +3%)`, of ranks the worst; then what noise says of it."""
        gate, status = self.gate, self.status
        worst = self.by.max() if gate.grows else self.by.min()
        limit = f"limit {with_unit(f'{gate.number:+.4g}', gate.unit)}"
        moved = with_unit(f"{worst:+.4g}", gate.unit)
        if gate.scope in OF_RANKS:
            failing = self.failing if status == FAILED else gate.fails(self.by)
            text = f"changed by {moved} at worst ({limit}), {_how_many(failing)}"
        else:
            text = (
                f"changed by {moved} ({_value(gate, self.base.iloc[0])} → {_value(gate, self.other.iloc[0])}, {limit})"
            )
        noise = self._of_noise(status)
        return f"{text}; {noise}" if noise else text

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


def _value(gate: Gate, value: float) -> str:
    """A value beside its change: in the column's unit where the change is in percent or points."""
    if gate.unit in ("pp", "%"):
        return in_a_line(value, gate.quantity) if gate.quantity else f"{value:,.4g}"
    return gate.shown(value)
