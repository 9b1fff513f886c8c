"""What became of a gate, and the rows behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.gate.grammar import OPERATORS, Gate

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

UNKNOWN = "cannot be judged"
"""The figure is not there, or the report marks it as doubtful."""

INCONCLUSIVE = "inconclusive"

OF_RANKS = ("any rank", "all ranks")
"""Scopes under which every rank is judged by itself."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One gate on one run.

    Attributes:
        gate: its text: the condition that must not hold.
        run: the run's name.
        status: `passed`, `failed`, `cannot be judged` (which fails too), `skipped` (not available, and optional) or
            `inconclusive` (the repeats cannot tell, or there are none).
        message: one sentence with the figure.
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
        return f"must not hold: {self.gate}" + (f" [{self.case}]" if self.case else "")


def not_available(gate: Gate, run: str, why: str, case: str = "") -> Outcome:
    """The gate cannot be evaluated: it fails, unless it is optional."""
    status = SKIPPED if gate.is_optional else UNKNOWN
    return Outcome(gate.text, run, status, f"{gate.metric}{after(case)} is not available: {why}", (), case)


def after(case: str) -> str:
    """A case behind the name of what it is of."""
    return f", {case}" if case else ""


def over_ranks(values: pd.Series, scope: str) -> pd.Series:
    """The values that are judged: each rank's own, or one over all ranks."""
    if scope in OF_RANKS:
        return values
    return pd.Series([getattr(values, scope)()], index=[scope])


def fails(gate: Gate, values: pd.Series) -> pd.Series:
    """For each value whether the gate's comparison holds; a change has been brought to the gate's unit before."""
    if gate.op is not None:
        compare = OPERATORS[gate.op]
        limit = gate.number * gate.factor
        return values.map(lambda value: compare(value, limit)).astype(bool)
    return (values > gate.number if gate.grows else values < gate.number).astype(bool)


def is_failed(gate: Gate, failing: pd.Series) -> bool:
    """Whether the gate fails: with `all ranks` only when every one does."""
    return bool(failing.all()) if gate.scope == "all ranks" else bool(failing.any())


def shown(gate: Gate, value: float) -> str:
    """A figure in the gate's unit."""
    unit = gate.unit or (gate.quantity or "")
    return f"{value / gate.factor:,.4g} {unit}".strip()


_HOLDS = {
    ">": "above", ">=": "at or above", "<": "below", "<=": "at or below", "==": "exactly", "!=": "other than",
}  # fmt: skip


def said_of_limit(gate: Gate, values: pd.Series, failing: pd.Series, rows: str = "ranks") -> str:
    """What is so of the figure against its limit, in words that say on which side of it it lies."""
    assert gate.op is not None
    limit = f"{_HOLDS[gate.op]} {shown(gate, gate.number * gate.factor)}"
    if gate.scope in OF_RANKS:
        return f"{how_many(failing, rows)} it is {limit}"
    return f"{gate.scope} is {shown(gate, values.iloc[0])}, {'' if failing.iloc[0] else 'not '}{limit}"


def how_many(failing: pd.Series, rows: str) -> str:
    """`on 2 of 8 ranks`."""
    held, total = int(failing.sum()), len(failing)
    if held == total:
        every = "both" if total == 2 else f"all {total}"
        return f"on {every} {rows}" if total > 1 else f"on the only one of the {rows}"
    return f"on {held or 'none'} of {total} {rows}"
