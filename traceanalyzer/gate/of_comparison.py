"""Gates on a comparison."""

from collections.abc import Collection, Sequence

import pandas as pd

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.analyses.doubts import reasons
from traceanalyzer.diff import Comparison, Side, joins, metrics
from traceanalyzer.diff.captures import Capture, Scale
from traceanalyzer.diff.joins import with_rank
from traceanalyzer.gate.grammar import Gate
from traceanalyzer.gate.judging import Figures, Outcome, judge, not_available, qualified
from traceanalyzer.gate.of_run import check_names, find, is_metric, lack_of_ranks, narrowed


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
    cases = rows[keys].agg(lambda row: ", ".join(map(str, row.dropna())) or "not known", axis=1) if keys else ""
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
    return [judge(gate, figures, side.label) for figures in found]
