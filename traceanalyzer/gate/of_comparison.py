"""Gates on a comparison: how much a figure may change against the base, per step, and plain limits on the others."""

from collections.abc import Collection, Sequence

import pandas as pd

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.analyses.engine import reasons
from traceanalyzer.diff import Comparison, Side, joins, metrics
from traceanalyzer.diff.captures import Capture, Scale, known_sums
from traceanalyzer.gate.grammar import Gate
from traceanalyzer.gate.judging import Figures, Outcome, judge, not_available, qualified
from traceanalyzer.gate.of_run import check_names, find, is_metric, lack_of_ranks, narrowed


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
            found = _figures(gate, sides, comparison.fairness.scale)
            outcomes = (
                [not_available(gate, side.label, found)]
                if isinstance(found, str)
                else [judge(gate, figures, side.label) for figures in found]
            )
            lack, doubts = _lack(sides, wanted), _doubts(gate, sides)
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


# The values of a figure: of each case by rank and repeat.


def _figures(gate: Gate, sides: Sequence[Side], scale: Scale) -> list[Figures] | str:
    """The gate's figure by case, or why there is none."""
    of_sides = []
    for side in sides:
        values = [_values(gate, capture, scale) for capture in side.captures]
        known = [own for own in values if own is not None]
        silent = len(values) - len(known)
        if silent and not (gate.is_optional and known):
            how_many = f" in {silent} of {len(values)} captures" if silent > 1 else ""
            return f"{side.label} has no value for it{how_many}"
        of_sides.append(known)
    cases = dict.fromkeys(case for own in of_sides for values in own for case in values)
    absent = 0.0 if _is_sum(gate) else None  # what adds up and has no row took nothing

    def of_side(case: str, known: Sequence[pd.DataFrame]) -> pd.DataFrame:
        columns = [own[case] if case in own else pd.Series(absent, index=own.index) for own in known]
        return pd.concat([column.astype("Float64") for column in columns], axis=1, ignore_index=True)

    made = [Figures(case, tuple(of_side(case, known) for known in of_sides)) for case in cases]
    return made or "no run has a row for it"


def _is_sum(gate: Gate) -> bool:
    if is_metric(gate):
        return False
    analysis, column = find(gate, of_comparison=True)
    return ANALYSES[analysis].result.columns[column].is_sum


def _values(gate: Gate, capture: Capture, scale: Scale) -> pd.DataFrame | None:
    """Ranks × cases: sums per step, anything else as it is; `None` where the capture does not tell."""
    if is_metric(gate):
        values = metrics.BY_NAME[gate.column].of(capture, scale)
        return None if values is None else values.to_frame("")
    analysis, column = find(gate, of_comparison=True)
    frame: pd.DataFrame | None = capture.table(analysis)
    known = ANALYSES[analysis].result
    if frame is None or column not in frame or (not capture.is_exact and "step" not in frame):
        return None  # an empty table too: whether there is nothing, or nothing was recorded, it does not say
    frame = joins.with_rank(capture.of_steps(frame) if "step" in known.keys else frame)
    ranks, rows = joins.ranks_of(capture, frame), narrowed(frame, gate)
    if rows.empty:
        return pd.DataFrame(index=ranks)
    keys = [*joins.joined_by(known)]
    cases = rows[keys].agg(lambda row: ", ".join(map(str, row.dropna())) or "not known", axis=1) if keys else ""
    numbers = pd.to_numeric(rows[column], errors="coerce").astype("Float64")
    groups = pd.DataFrame({"rank": rows["rank"], "case": cases, "value": numbers}).groupby(["rank", "case"], sort=False)
    if not _is_sum(gate):
        return _wide(groups["value"].mean(), ranks)
    # A sum with an unknown part is unknown; a rank without the row took nothing.
    sums = _wide(known_sums(groups, ["value"])["value"] / scale.divisor(capture), ranks)
    return sums.where(_wide(groups.size(), ranks).notna(), 0.0)


def _wide(values: pd.Series, ranks: list[int]) -> pd.DataFrame:
    """Ranks × cases, absent where there is no row."""
    made: pd.DataFrame = values.unstack("case").reindex(ranks)  # noqa: PD010 - of an index, which pivot_table has not
    return made
