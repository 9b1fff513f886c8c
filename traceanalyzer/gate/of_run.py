"""Gates on one run: rows of its Results, as summary.json and the tables have them."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import pandas as pd

from traceanalyzer.analyses import ANALYSES, Result
from traceanalyzer.analyses.base import plain_values
from traceanalyzer.errors import UsageError
from traceanalyzer.gate.grammar import Gate
from traceanalyzer.gate.outcomes import FAILED, PASSED, Outcome, fails, is_failed, not_available, over_ranks, shown

_FIRST = ("headline", "exposed_comm", "idle")
"""Where a column is looked for first when the gate names no analysis; the others follow in their own order."""

_NO_DOUBTS: Mapping[str, str] = MappingProxyType({})


def check_run(
    gates: Sequence[Gate],
    results: Mapping[str, Result],
    run: str,
    *,
    lack: str | None = None,
    doubts: Mapping[str, str] = _NO_DOUBTS,
) -> list[Outcome]:
    """Evaluate gates on a run's Results.

    With several rows a rank (collectives, kernels) every key is judged by itself. A Result with a row for each
    step is judged over the complete steps that all ranks have. A gate that the ranks which are here would pass is
    not available when others are missing.

    Args:
        gates: what to check.
        results: the run's.
        run: its name.
        lack: why not all ranks are here (`lack_of_ranks`).
        doubts: names of Results whose figures are to be read with care, and why.

    Raises:
        UsageError: a gate compares with a base run, or names a column that no Result has.
    """
    columns = {name: list(result.columns) for name, result in results.items()}
    made = []
    for gate in gates:
        _require_limit(gate)
        analysis, column = find(gate, columns)
        outcomes = _check(gate, results, analysis, column, run)
        made += [_qualified(gate, outcome, lack, doubts.get(analysis)) for outcome in outcomes]
    return made


def _require_limit(gate: Gate) -> None:
    if gate.op is None:
        raise UsageError(f"--fail-on {gate.text!r}: a change needs a base run; use it with diff")


def _check(gate: Gate, results: Mapping[str, Result], analysis: str, column: str, run: str) -> list[Outcome]:
    result = results[analysis]
    frame = of_steps(result.to_frame(), results)
    rows = narrowed(frame, gate)
    if rows.empty:
        return [not_available(gate, run, f"{analysis} has no row for it")]
    if not pd.api.types.is_numeric_dtype(rows[column]):
        raise UsageError(f"--fail-on {gate.text!r}: {analysis}.{column} is no number")
    extra = [key for key in result.keys if key not in ("rank", "step")]
    return [_judge(gate, own, column, extra, run) for _, own in _cases(rows, extra)]


def _qualified(gate: Gate, outcome: Outcome, lack: str | None, doubt: str | None) -> Outcome:
    """The outcome with what its figure does not see, or is in doubt for."""
    if lack and outcome.status == PASSED:
        return not_available(gate, outcome.run, f"{lack}; over the others {outcome.message}")
    doubt = doubt and f"read with care: {doubt}"
    return replace(outcome, message="; ".join(text for text in (outcome.message, lack, doubt) if text))


def find(gate: Gate, columns: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """The analysis and column that a gate names.

    Raises:
        UsageError: there is none.
    """
    if gate.analysis is None and gate.column in _aliases():
        return _aliases()[gate.column]
    order = [gate.analysis] if gate.analysis else [*(name for name in _FIRST if name in columns), *columns]
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
def _aliases() -> Mapping[str, tuple[str, str]]:
    """By another name for a column, its analysis and own name."""
    return {
        column.alias: (analysis, name)
        for analysis, known in ANALYSES.items()
        for name, column in known.result.columns.items()
        if column.alias
    }


def of_steps(frame: pd.DataFrame, results: Mapping[str, Result]) -> pd.DataFrame:
    """Rows of the headline's steps where a table has steps; without such steps the rows of no step."""
    if "step" not in frame:
        return frame
    steps = results["steps"].to_frame()
    complete = steps[steps["is_complete"].fillna(value=False).astype(bool)] if len(steps) else steps
    holders = complete.groupby("step")["rank"].nunique() if len(complete) else pd.Series(dtype="int64")
    shared = holders.index[holders == len(results["headline"])]
    return frame[frame["step"].isin(shared)] if len(shared) else frame[frame["step"].isna()]


def narrowed(frame: pd.DataFrame, gate: Gate) -> pd.DataFrame:
    """The rows whose keys have the wanted values.

    Raises:
        UsageError: a key is no column.
    """
    for key, wanted in gate.where:
        if key not in frame:
            raise UsageError(f"--fail-on {gate.text!r}: the table has no column {key}; {_near(key, list(frame))}")
        frame = frame[frame[key].astype("object").map(str, na_action="ignore") == wanted]
    return frame


def _cases(rows: pd.DataFrame, extra: list[str]) -> Iterable[tuple[object, pd.DataFrame]]:
    return rows.groupby(extra, dropna=False, sort=False, observed=True) if extra else [(None, rows)]


def _judge(gate: Gate, rows: pd.DataFrame, column: str, extra: list[str], run: str) -> Outcome:
    case = "".join(f", {key} {rows[key].iloc[0]}" for key in extra)
    is_absent = rows[column].isna()
    if is_absent.any() and not (gate.is_optional and not is_absent.all()):
        return not_available(gate, run, f"the trace does not tell it{_of_ranks(rows[is_absent])}{case}")
    known = rows[~is_absent]
    values = over_ranks(known[column].astype(float), gate.scope)
    failing = fails(gate, values)
    failed = is_failed(gate, failing)
    picked = known.loc[failing.index[failing]] if gate.scope in ("any rank", "all ranks") else known
    figure = (
        f"{gate.scope} is {shown(gate, values.iloc[0])}"
        if len(values) == 1 and gate.scope not in ("any rank", "all ranks")
        else f"{int(failing.sum())} of {len(values)} ranks"
    )
    kept = [name for name in ("rank", "step", *extra) if name in picked]
    return Outcome(
        gate.text, run, FAILED if failed else PASSED, f"{gate.metric}{case}: {figure}",
        _rows(picked[[*kept, column]]) if failed else (),
    )  # fmt: skip


def _of_ranks(rows: pd.DataFrame) -> str:
    return f" for rank {', '.join(str(rank) for rank in rows['rank'].unique())}" if "rank" in rows else ""


def _rows(frame: pd.DataFrame) -> tuple[dict[str, object], ...]:
    plain = {str(name): plain_values(frame[name]) for name in frame}
    return tuple(dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True))


def _near(name: str, known: Iterable[str]) -> str:
    """Names that may be meant; where none is near, the likest ones and where all stand."""
    names = sorted(set(known))
    if near := difflib.get_close_matches(name, names, 3):
        return f"did you mean {', '.join(near)}?"
    likest = difflib.get_close_matches(name, names, 3, cutoff=0)
    return f"of {len(names)} the likest are {', '.join(likest)}; docs/metrics.md has all"
