"""Which table and column a gate names: the registry knows, so a misspelt one is refused before anything is read."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.diff import metrics
from traceanalyzer.errors import UsageError
from traceanalyzer.gate.grammar import Gate
from traceanalyzer.meaning.columns import Unit

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
    return f"of {len(names)} the likest are {', '.join(likest)}; docs/metrics.md has all"
