"""Gates on a comparison: how much a figure may change against the base, per step, and plain limits on the others."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from traceanalyzer.columns import Unit
from traceanalyzer.diff import Comparison, Side, joins, metrics
from traceanalyzer.diff.captures import Capture, result_class
from traceanalyzer.diff.scales import Scale
from traceanalyzer.diff.sums import with_rank
from traceanalyzer.errors import UsageError
from traceanalyzer.gate.grammar import Gate
from traceanalyzer.gate.of_run import find, narrowed
from traceanalyzer.gate.outcomes import FAILED, PASSED, Outcome, fails, is_failed, not_available, over_ranks, shown

_CASE = "case"


def check_comparison(gates: Sequence[Gate], comparison: Comparison) -> list[Outcome]:
    """Evaluate gates on every run but the base.

    Figures are the comparison's: sums per optimizer step (or per token), means over repeats. `any rank` and
    `all ranks` compare a rank with the same rank of the base; the others compare their value over ranks.

    Raises:
        UsageError: a gate names a figure that no run has.
    """
    return [outcome for gate in gates for side in comparison.others for outcome in _check(gate, comparison, side)]


def _check(gate: Gate, comparison: Comparison, side: Side) -> list[Outcome]:
    scale = comparison.fairness.scale
    base, other = (_values(gate, one, scale) for one in (comparison.base, side))
    if other is None or (gate.op is None and base is None):
        which = side if other is None else comparison.base
        return [not_available(gate, side.label, f"{which.label} does not tell it")]
    if gate.op is not None:
        return [
            _limit(gate, own.set_index("rank")["value"], case, side.label)
            for case, own in other.groupby(_CASE, sort=False)
        ]
    assert base is not None
    both = base.merge(other, on=[_CASE, "rank"], how="outer", suffixes=("_base", "_other"))
    if _is_sum(gate, side):  # a row that one run does not have took no time there
        both[["value_base", "value_other"]] = _filled(both, base, other)
    return [_change(gate, own.set_index("rank"), case, side.label) for case, own in both.groupby(_CASE, sort=False)]


def _filled(both: pd.DataFrame, base: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Zero where a run has the rank but not the row."""
    made = {}
    for column, own in (("value_base", base), ("value_other", other)):
        has_row = both.set_index([_CASE, "rank"]).index.isin(own.set_index([_CASE, "rank"]).index)
        made[column] = both[column].where(has_row | ~both["rank"].isin(own["rank"]), 0.0)
    return pd.DataFrame(made)


def _limit(gate: Gate, values: pd.Series, case: object, run: str) -> Outcome:
    if values.isna().any():
        return not_available(gate, run, f"not for every rank{_named(case)}")
    judged = over_ranks(values.astype(float), gate.scope)
    failing = fails(gate, judged)
    rows = tuple({"rank": rank, gate.column: value} for rank, value in values.items())
    text = ", ".join(shown(gate, value) for value in judged[:8])
    return _outcome(gate, run, failing, f"{gate.metric}{_named(case)}: {gate.scope} is {text}", rows)


def _change(gate: Gate, own: pd.DataFrame, case: object, run: str) -> Outcome:
    if own.isna().to_numpy().any() and not gate.is_optional:
        return not_available(gate, run, f"not for every rank of both runs{_named(case)}")
    own = own[["value_base", "value_other"]].dropna()
    if own.empty:
        return not_available(gate, run, f"not for both runs{_named(case)}")
    base, other = (over_ranks(own[name].astype(float), gate.scope) for name in ("value_base", "value_other"))
    changes = pd.Series(_changes(gate, base.to_numpy(), other.to_numpy()), index=base.index)
    failing = fails(gate, changes)
    rows = tuple(
        {"rank": rank, f"base_{gate.column}": one, gate.column: two, "change": f"{change:+.4g} {gate.unit}".strip()}
        for rank, one, two, change in zip(base.index, base, other, changes, strict=True)
    )
    worst = changes.max() if gate.grows else changes.min()
    message = f"{gate.metric}{_named(case)}: {gate.scope} changes by {worst:+.4g} {gate.unit}".rstrip()
    return _outcome(gate, run, failing, message, rows)


def _changes(gate: Gate, base: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Differences in the gate's unit; growth from nothing is infinite."""
    if gate.unit != "%" or gate.quantity is Unit.PCT:
        return np.asarray((other - base) / (1.0 if gate.unit == "pp" else gate.factor))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = 100 * (other - base) / np.abs(base)
    return np.where(other == base, 0.0, relative)


def _outcome(gate: Gate, run: str, failing: pd.Series, message: str, rows: tuple[dict[str, object], ...]) -> Outcome:
    failed = is_failed(gate, failing)
    if gate.scope in ("any rank", "all ranks"):
        rows = tuple(row for row, is_bad in zip(rows, failing, strict=True) if is_bad)
    return Outcome(gate.text, run, FAILED if failed else PASSED, message, rows if failed else ())


def _named(case: object) -> str:
    return f", {case}" if case else ""


def _values(gate: Gate, side: Side, scale: Scale) -> pd.DataFrame | None:
    """Columns `case`, `rank`, `value`: means over the side's repeats; `None` when none of them tells."""
    known = [frame for capture in side.captures if (frame := _of_capture(gate, capture, scale)) is not None]
    if not known:
        return None
    return pd.concat(known).groupby([_CASE, "rank"], sort=False)["value"].mean().reset_index()


def _of_capture(gate: Gate, capture: Capture, scale: Scale) -> pd.DataFrame | None:
    metric = metrics.BY_NAME.get(gate.column) if gate.analysis is None else None
    if metric is not None:
        values = metrics.measured(capture, metric, scale)
        if values is None:
            return None
        return pd.DataFrame({_CASE: "", "rank": values.index, "value": values.to_numpy()})
    return _of_table(gate, capture, scale)


def _of_table(gate: Gate, capture: Capture, scale: Scale) -> pd.DataFrame | None:
    """A column of a Result: sums per step, anything else as it is."""
    analysis, column = find(gate, {name: list(frame) for name, frame in capture.tables.items()})
    known = result_class(analysis)
    is_sum = known is not None and column in known.columns and known.columns[column].is_sum
    frame = with_rank(capture.tables[analysis])
    if known is None or (not capture.is_exact and "step" not in frame):
        return None
    if frame.empty:
        return _nothing(gate, capture, is_sum=is_sum)
    if not pd.api.types.is_numeric_dtype(frame[column]):
        raise UsageError(f"--fail-on {gate.text!r}: {analysis}.{column} is no number")
    if "step" in frame:
        frame = frame[frame["step"].isin(capture.steps)] if capture.steps else frame[frame["step"].isna()]
    rows = narrowed(frame, gate)
    keys = [key for key in joins.joined_by(known) if key != "step"]
    cases = (
        rows[keys].astype("object").fillna("not known").astype("str").agg(", ".join, axis=1)
        if keys and len(rows)
        else ""
    )
    groups = rows.assign(**{_CASE: cases}).groupby([_CASE, "rank"], sort=False)[column]
    if is_sum:
        values = groups.sum(min_count=1).astype("Float64") / scale.divisor(capture)
    else:
        values = groups.mean().astype("Float64")
    made = values.rename("value").reset_index()
    return made if len(made) else _nothing(gate, capture, is_sum=is_sum)


def _is_sum(gate: Gate, side: Side) -> bool:
    """Whether the gate's figure is a column that adds up."""
    if gate.analysis is None and gate.column in metrics.BY_NAME:
        return False  # a row for each rank, in every run
    analysis, column = find(gate, {name: list(frame) for name, frame in side.first.tables.items()})
    known = result_class(analysis)
    return known is not None and column in known.columns and known.columns[column].is_sum


def _nothing(gate: Gate, capture: Capture, *, is_sum: bool) -> pd.DataFrame | None:
    """Ranks with 0 where a run has no row at all of a sum; otherwise not available."""
    ranks = capture.table("breakdown")
    if ranks is None or not is_sum:
        return None
    case = ", ".join(value for _, value in gate.where)
    return pd.DataFrame({_CASE: case, "rank": ranks["rank"], "value": 0.0})
