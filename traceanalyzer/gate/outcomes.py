"""What became of a gate, and the rows behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.gate.grammar import OPERATORS, Gate

PASSED, FAILED, NOT_AVAILABLE, SKIPPED = "passed", "failed", "not available", "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One gate on one run.

    Attributes:
        gate: its text.
        run: the run's name.
        status: `passed`, `failed`, `not available` (which fails too) or `skipped` (not available, and optional).
        message: one sentence with the figure.
        rows: the rows that failed; for a gate over ranks those that it was computed from.
    """

    gate: str
    run: str
    status: str
    message: str
    rows: tuple[Mapping[str, Any], ...] = ()


def not_available(gate: Gate, run: str, why: str) -> Outcome:
    """The gate cannot be evaluated: it fails, unless it is optional."""
    status = SKIPPED if gate.is_optional else NOT_AVAILABLE
    return Outcome(gate.text, run, status, f"{gate.metric} is not available: {why}")


def over_ranks(values: pd.Series, scope: str) -> pd.Series:
    """The values that are judged: each rank's own, or one over all ranks."""
    if scope in ("any rank", "all ranks"):
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
