"""How a figure changes between two runs, and whether their repeats can tell that from noise."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.diff import welch
from traceanalyzer.gate.grammar import Gate
from traceanalyzer.gate.outcomes import FAILED, INCONCLUSIVE, OF_RANKS, PASSED, fails, how_many, is_failed, shown
from traceanalyzer.meaning.columns import Unit


@dataclass(frozen=True, slots=True)
class Change:
    """Of what is judged (each rank, or one value over all): means over repeats, and their difference.

    Attributes:
        gate: the condition.
        base: mean of the base's repeats.
        other: mean of the other run's repeats.
        by: the change, in the gate's unit; growth from nothing is infinite.
        margin: half the 95 % interval of the change (Welch), in the gate's unit; infinite with one capture of a run, 0
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
        return beyond & self.is_told if self.gate.is_significant else beyond

    @property
    def is_told(self) -> pd.Series:
        """Where the change is more than noise: p < 0.05."""
        return (self.by.abs() > self.margin).astype(bool)

    @property
    def status(self) -> str:
        """A gate of significance passes only where the noise cannot hide a change that would fail it."""
        failing = self.failing
        if is_failed(self.gate, failing):
            return FAILED
        if not self.gate.is_significant:
            return PASSED
        limit, sign = abs(self.gate.number), 1 if self.gate.grows else -1
        is_sharp = (self.margin <= limit) | (sign * self.by + self.margin <= limit)
        clear = ~fails(self.gate, self.by) & is_sharp
        return PASSED if (clear.any() if self.gate.scope == "all ranks" else clear.all()) else INCONCLUSIVE

    @property
    def sentence(self) -> str:
        """What is so of it, in words that say on which side of the limit it lies."""
        gate, status = self.gate, self.status
        allowed = f"the {abs(gate.number):.4g} {gate.unit}".rstrip() + " allowed"
        if gate.scope in OF_RANKS:
            failing = self.failing if status == FAILED else fails(gate, self.by)
            how = "grows" if gate.grows else "falls"
            said = f"{how_many(failing, 'ranks')} it {how} by more than {allowed}, at the worst it {self._moved}"
        else:
            both = f"{shown_value(gate, self.base.iloc[0])} → {shown_value(gate, self.other.iloc[0])}"
            side = "more than" if fails(gate, self.by).iloc[0] else "within"
            said = f"{gate.scope} {self._moved} ({both}), {side} {allowed}"
        return "; ".join(text for text in (said, self._of_noise(status)) if text)

    @property
    def _moved(self) -> str:
        worst = self.by.max() if self.gate.grows else self.by.min()
        if not worst:
            return "does not change"
        return f"{'grows' if worst > 0 else 'falls'} by {abs(worst):.4g} {self.gate.unit}".rstrip()

    def _of_noise(self, status: str) -> str:
        captures = f"{self.repeats[0]} {'capture' if self.repeats[0] == 1 else 'captures'} against {self.repeats[1]}"
        if np.isinf(self.margin).any():
            said = f"{captures} cannot tell a change from noise: record three or more of each"
            return said if status == INCONCLUSIVE else ""
        if not self.margin.any():
            return ""
        noise = f"± {self.margin.max():.3g} {self.gate.unit}".rstrip()
        if status == INCONCLUSIVE:
            return f"{captures} tell changes from noise only beyond {noise}: record more, or quieter ones"
        if status == FAILED and not self.is_told[self.failing].all():
            return f"of {captures} that is within the noise, {noise}: 'significant' behind the limit fails on more only"
        return f"{captures}, {noise}"


def _margin(base: list[float], other: list[float]) -> float:
    """Half the 95 % interval of the difference; runs of the same values differ by nothing."""
    if base == other:
        return 0.0
    return welch.margin(base, other) if min(len(base), len(other)) > 1 else float("inf")


def _in_unit(gate: Gate, difference: pd.Series, base: pd.Series) -> pd.Series:
    """A difference in the gate's unit: per cent of the base, points, or its own."""
    if gate.unit != "%" or gate.quantity is Unit.PCT:
        return difference / (1.0 if gate.unit == "pp" else gate.factor)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (100 * difference / base.abs()).where(difference != 0, 0.0)


def shown_value(gate: Gate, value: float) -> str:
    """A value beside its change: in the unit of a percentage or of the column where the change is in per cent."""
    if gate.unit == "pp":
        return f"{value:,.4g} %"
    if gate.unit == "%":
        unit = {"ns": (1e6, "ms"), "bytes": (1e9, "GB")}.get(str(gate.quantity or ""), (1.0, ""))
        return f"{value / unit[0]:,.4g} {unit[1]}".strip()
    return shown(gate, value)
