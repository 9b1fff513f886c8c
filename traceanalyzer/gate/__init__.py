"""Conditions on figures under which a build fails: --fail-on, for one run and for a comparison."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice

import pandas as pd

from traceanalyzer.analyses import ANALYSES, Results
from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.analyses.breakdown import steps_of
from traceanalyzer.analyses.engine import reasons
from traceanalyzer.analyses.integrity import damage_text
from traceanalyzer.diff import Comparison, Side, joins, metrics
from traceanalyzer.diff.captures import Capture, Scale, known_sums
from traceanalyzer.errors import UsageError
from traceanalyzer.gate.grammar import Gate, parse, parse_file
from traceanalyzer.gate.judging import (
    FAILED,
    INCONCLUSIVE,
    PASSED,
    SKIPPED,
    UNKNOWN,
    Figures,
    Outcome,
    judge,
    not_available,
    qualified,
)
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.vocabulary import MOST_PIECES, lacking, numbered
from traceanalyzer.model import Skipped

__all__ = [
    "FAILED", "INCONCLUSIVE", "PASSED", "SKIPPED", "UNKNOWN", "Gate", "Outcome",
    "check_comparison", "check_names", "check_run", "gravest", "lack_of_ranks", "parse", "parse_file",
]  # fmt: skip


def gravest(outcomes: Sequence[Outcome]) -> str:
    """The status that decides over the build: a failure, then what cannot be judged, then what noise leaves open."""
    found = {outcome.status for outcome in outcomes}
    return next((status for status in (FAILED, UNKNOWN, INCONCLUSIVE) if status in found), PASSED)


# Which table and column a gate names: the registry knows, so a misspelt one is refused before anything is read.


_FIRST = ("headline", "exposed_comm", "idle")
"""Where a column is looked for first when the gate names no analysis; the others follow in their own order."""


def check_names(gates: Iterable[Gate], *, of_comparison: bool = False) -> None:
    """Refuse gates that could never be evaluated.

    Raises:
        UsageError: a column, a table or a key of one does not exist or is no number; or a change has no base run.
    """
    for gate in gates:
        if gate.op is None and not of_comparison:
            raise UsageError(f"--fail-on {gate.text!r}: a change needs a base run; use it with diff")
        if of_comparison and is_metric(gate):
            if gate.where:
                raise UsageError(
                    f"--fail-on {gate.text!r}: {gate.column} is one figure a run; it has no rows to choose"
                )
            continue
        find(gate, of_comparison=of_comparison)


def is_metric(gate: Gate) -> bool:
    """Whether in a comparison it is of the figures that runs are compared by, not of a table."""
    return gate.analysis is None and gate.column in metrics.BY_NAME


def find(gate: Gate, *, of_comparison: bool = False) -> tuple[str, str]:
    """The analysis and column that a gate names.

    Raises:
        UsageError: there is none, or its rows cannot be chosen as the gate does.
    """
    analysis, column = _place(gate, _columns(of_comparison))
    known = ANALYSES[analysis].result.columns
    if known[column].unit is Unit.TEXT:
        raise UsageError(f"--fail-on {gate.text!r}: {analysis}.{column} is no number")
    for key, _ in gate.where:
        if key not in known:
            raise UsageError(f"--fail-on {gate.text!r}: the table has no column {key}; {_near(key, known)}")
    return analysis, column


def _place(gate: Gate, columns: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    if gate.analysis is None and gate.column in _aliases():
        return _aliases()[gate.column]
    order = [gate.analysis] if gate.analysis else [*_FIRST, *columns]
    for name in order:
        if gate.column in columns.get(name, ()):
            return name, gate.column
    if gate.analysis and gate.analysis not in columns:
        raise UsageError(
            f"--fail-on {gate.text!r}: no table is called {gate.analysis}; {_near(gate.analysis, columns)}"
        )
    known = {column for name, own in columns.items() if gate.analysis in (None, name) for column in own}
    where = f"{gate.analysis} has no" if gate.analysis else "no table has a"
    raise UsageError(f"--fail-on {gate.text!r}: {where} column {gate.column}; {_near(gate.column, known)}")


@cache
def _columns(of_comparison: bool) -> Mapping[str, Sequence[str]]:
    """Columns by analysis; a comparison has no tables with a row for each event."""
    return {
        name: tuple(analysis.result.columns)
        for name, analysis in ANALYSES.items()
        if not (of_comparison and analysis.result.is_detail)
    }


@cache
def _aliases() -> Mapping[str, tuple[str, str]]:
    """By another name for a column, its analysis and own name."""
    return {
        column.alias: (analysis, name)
        for analysis, known in ANALYSES.items()
        for name, column in known.result.columns.items()
        if column.alias
    }


def _near(name: str, known: Iterable[str]) -> str:
    """Names that may be meant; where none is near, the likest ones and where all stand."""
    names = sorted(set(known))
    if near := difflib.get_close_matches(name, names, 3):
        return f"did you mean {', '.join(near)}?"
    likest = difflib.get_close_matches(name, names, 3, cutoff=0)
    return f"of {len(names)} the closest are {', '.join(likest)}; docs/reference/tables.md has all"


# Gates on one run: rows of its Results, as summary.json and the tables have them.


def check_run(
    gates: Sequence[Gate],
    results: Results,
    run: str,
    *,
    lack: str | None = None,
) -> list[Outcome]:
    """Evaluate gates on a run's Results.

    With several rows a rank (collectives, kernels) every key is judged by itself. A Result with a row for each
    step is judged over the complete steps that all ranks have. A gate that the ranks which are here would pass
    cannot be judged when others are missing, nor can one on a Result that the integrity checks mark.

    Args:
        gates: what to check.
        results: the run's.
        run: its name.
        lack: why not all ranks are here (`lack_of_ranks`).

    Raises:
        UsageError: a gate compares with a base run, or names a column that no Result has.
    """
    check_names(gates)
    doubts = reasons(results["integrity"].to_frame() if "integrity" in results else None)
    made = []
    for gate in gates:
        analysis, column = find(gate)
        outcomes = _check(gate, results, analysis, column, run)
        made += [qualified(gate, outcome, lack, doubts.get(analysis, ())) for outcome in outcomes]
    return made


def _check(gate: Gate, results: Results, analysis: str, column: str, run: str) -> list[Outcome]:
    if analysis not in results:
        return [not_available(gate, run, f"{analysis} could not be computed")]
    result = results[analysis]
    rows = result.to_frame()
    if "step" in result.keys and "step" in rows:
        shared = steps_of(results["headline"], results["steps"])
        rows = rows[rows["step"].isin(shared) if shared else rows["step"].isna()]
    rows = narrowed(rows, gate)
    if rows.empty:
        return [not_available(gate, run, f"{analysis} has no row for it")]
    extra = [key for key in result.keys if key not in ("rank", "step")]
    cases = rows.groupby(extra, dropna=False, sort=False, observed=True) if extra else [(None, rows)]
    return [judge(gate, _figures(own, column, extra), run) for _, own in cases]


def _figures(rows: pd.DataFrame, column: str, extra: list[str]) -> Figures:
    """The values of a case's rows, each judged by itself."""
    case = ", ".join(f"{key} {rows[key].iloc[0]}" for key in extra)
    keys = plain_rows(rows[[name for name in ("rank", "step", *extra) if name in rows]])
    return Figures(case, (pd.DataFrame({0: rows[column].astype("Float64").array}),), tuple(keys))


def narrowed(frame: pd.DataFrame, gate: Gate) -> pd.DataFrame:
    """The rows whose keys have the wanted values."""
    for key, wanted in gate.where:
        frame = frame[frame[key].astype("object").map(str, na_action="ignore") == wanted]
    return frame


# Which ranks of a run a gate does not see, so that one who is over the limit may be among them.


def lack_of_ranks(
    ranks: pd.DataFrame,
    wanted: Collection[int] | None,
    skipped: Sequence[Skipped],
    integrity: pd.DataFrame | None = None,
) -> str | None:
    """Why the gates do not see the whole run; `None` when they do.

    Ranks are missing by the world size that the traces state, or of those that the user asked for: ranks that
    nobody asked for are no lack. Where no trace states a world size, a skipped file may have been a rank. Of a rank
    whose file is cut off, what came after the cut is not seen.

    Args:
        ranks: the table of that name.
        wanted: ranks that the user asked for; `None` is all.
        skipped: files and ranks that were left out.
        integrity: the table of that name: of a rank whose times cannot be true nothing is seen.
    """
    sizes = ranks["world_size"].dropna()
    here = set(ranks["rank"])
    expected = sorted(wanted) if wanted is not None else range(int(sizes.max()) if len(sizes) else 0)
    count = sum(rank not in here for rank in expected)
    left_out = "; ".join(f"{item.what}: {item.why}" for item in islice(skipped, MOST_PIECES))
    if count:
        text = f"{count} of {len(expected)} ranks {'is' if count == 1 else 'are'} missing ({lacking(expected, here)})"
        return f"{text}; skipped {left_out}" if left_out else text
    if left_out and not expected:
        return f"skipped {left_out}"
    # Of a summary that another version stored there is no such column.
    cut = ranks[ranks["truncated"].astype("boolean").fillna(value=False)] if "truncated" in ranks else ranks.head(0)
    if len(cut):
        return f"the file of {numbered('rank', cut['rank'])} is cut off, so that the rest of it is not seen"
    return None if integrity is None else damage_text(integrity)


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
            found = _compared(gate, sides, comparison.fairness.scale)
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


def _compared(gate: Gate, sides: Sequence[Side], scale: Scale) -> list[Figures] | str:
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
