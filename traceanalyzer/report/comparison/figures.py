"""The figures of a comparison side by side: a row each, a column for each run, as pages and Markdown show them."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.diff import Comparison, welch
from traceanalyzer.diff.metrics import BY_NAME
from traceanalyzer.meaning.columns import stem
from traceanalyzer.meaning.quantities import ABSENT, Scale, digits, is_known, scale, signed
from traceanalyzer.meaning.vocabulary import COMM_PARTS, IDLE_PARTS, OPAQUE, PARTS, UNMATCHED, UNSPLIT
from traceanalyzer.report.comparison.verdict import per

POINTS = "pp"

_RARE = frozenset(part.column for part in (OPAQUE, UNMATCHED, *IDLE_PARTS))

_MOST_PCT = 10_000.0
"""More is no share of anything any longer: the base has next to none of it."""

_LABELS = {**{part.column: part.label for part in (*PARTS, *COMM_PARTS, *IDLE_PARTS)}, UNMATCHED.column: UNSPLIT.label}

_WORDS = {"comm": "communication", "std": "standard deviation", "mfu": "MFU"}
"""What a page calls parts of figures' names."""


@dataclass(frozen=True, slots=True)
class Value:
    """One run's value of a figure: text, spread, change, and the length of its bar in per cent."""

    text: str
    spread: str
    change: str
    change_unit: str
    significance: str
    width: float


@dataclass(frozen=True, slots=True)
class Row:
    """One figure; its unit stands once for all runs."""

    metric: str
    label: str
    unit: str
    definition: str
    cells: tuple[Value, ...]
    is_nothing: bool
    """No run has any of it."""


def rows(comparison: Comparison) -> list[Row]:
    """Every figure that some run has; parts that are rare only where there is any of them."""
    return [
        _row(comparison, str(name), own.set_index("run"))
        for name, own in comparison.metrics.groupby("metric", sort=False)
        if name not in _RARE or own["value"].any()
    ]


def is_of_single_captures(comparison: Comparison) -> bool:
    """Whether some change cannot be told from noise because a run was captured once."""
    return bool((comparison.metrics["significance"] == welch.CANNOT_TELL).any())


def _row(comparison: Comparison, name: str, own: pd.DataFrame) -> Row:
    known = own["value"].dropna().abs()
    largest = float(known.max()) if len(known) else 0.0
    shown = scale(BY_NAME[name].unit, known.tolist())
    of_what = per(comparison)
    is_said = name == "step_ns" and of_what == "a step"
    metric, scaled = BY_NAME[name], comparison.fairness.scale
    suffix = f" {of_what}" if metric.per_step and not is_said and (scaled.per_token or not metric.of_one_step) else ""
    values = tuple(_value(own.loc[run], shown, largest) for run in comparison.runs)
    return Row(
        name, _label(name), f"{shown.symbol}{suffix}".strip(), str(own["definition"].iloc[0]), values, largest == 0
    )


def _label(name: str) -> str:
    if name in _LABELS:
        return _LABELS[name]
    return " ".join(_WORDS.get(word, word) for word in stem(name).split("_"))


def _value(row: pd.Series, shown: Scale, largest: float) -> Value:
    if not is_known(row["value"]):
        return Value(ABSENT, "", "", "", "", 0.0)
    low, high = row["rank_min"], row["rank_max"]
    spread = (
        f"{shown.text(float(low))} to {shown.text(float(high))} over ranks" if is_known(low) and low != high else ""
    )
    if is_known(row["std"]):
        spread = f"± {shown.text(float(row['std']))}, n = {row['repeats']}" + (f"; {spread}" if spread else "")
    change, unit = _change(row)
    width = 100 * abs(float(row["value"])) / largest if largest else 0.0
    return Value(shown.text(float(row["value"])), spread, change, unit, _significance(row), width)


def _change(row: pd.Series) -> tuple[str, str]:
    """Per cent of the base's value, or points of a percentage: never one for the other."""
    if is_known(row["change_pct_points"]):
        return signed(float(row["change_pct_points"])), POINTS
    if is_known(row["change_pct"]):
        pct = float(row["change_pct"])
        return (signed(pct) if pct <= _MOST_PCT else f"> {signed(_MOST_PCT)}"), "%"
    return "", ""


def _significance(row: pd.Series) -> str:
    says = row["significance"]
    if not is_known(says) or says in (welch.EQUAL, welch.CANNOT_TELL):
        return ""
    p = "" if not is_known(row["p_value"]) else f" (p = {digits(float(row['p_value']))})"
    return f"{says}{p}"
