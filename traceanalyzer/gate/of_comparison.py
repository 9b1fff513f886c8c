"""Gates on a comparison: how much a figure may change against the base, per step, and plain limits on the others."""

from collections.abc import Collection, Sequence

import pandas as pd

from traceanalyzer.analyses.doubts import reasons
from traceanalyzer.diff import Comparison, Side, metrics
from traceanalyzer.diff.scales import Scale
from traceanalyzer.gate.change import Change
from traceanalyzer.gate.figures import check_names, find, is_metric
from traceanalyzer.gate.grammar import Gate
from traceanalyzer.gate.lacks import lack_of_ranks
from traceanalyzer.gate.of_run import qualified
from traceanalyzer.gate.outcomes import (
    FAILED,
    OF_RANKS,
    PASSED,
    Outcome,
    after,
    fails,
    is_failed,
    not_available,
    said_of_limit,
)
from traceanalyzer.gate.repeats import Figures, figures_of


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
    status = FAILED if is_failed(gate, failing) else PASSED
    rows = [{"rank": rank, gate.column: float(value)} for rank, value in figures.sides[0].mean(axis=1).items()]
    return _outcome(gate, run, status, said_of_limit(gate, means, failing), rows, failing, figures.case)


def _change(gate: Gate, base: pd.DataFrame, other: pd.DataFrame, case: str, run: str) -> Outcome:
    change = Change.of(gate, base, other)
    rows = [
        {
            "rank": rank,
            f"base_{gate.column}": float(change.base[rank]),
            f"other_{gate.column}": float(change.other[rank]),
            "change": f"{by:+.4g} {gate.unit}".strip(),
        }
        for rank, by in change.by.items()
    ]
    return _outcome(gate, run, change.status, change.sentence, rows, change.failing, case)


def _outcome(
    gate: Gate, run: str, status: str, said: str, rows: list[dict[str, object]], failing: pd.Series, case: str
) -> Outcome:
    if gate.scope in OF_RANKS:
        rows = [row for row, is_bad in zip(rows, failing, strict=True) if is_bad]
    message = f"{gate.metric}{after(case)}: {said}"
    return Outcome(gate.text, run, status, message, tuple(rows) if status == FAILED else (), case)
