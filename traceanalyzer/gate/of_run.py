"""Gates on one run: rows of its Results, as summary.json and the tables have them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.analyses.doubts import reasons
from traceanalyzer.analyses.time.headline import steps_of
from traceanalyzer.gate.figures import check_names, find
from traceanalyzer.gate.grammar import Gate
from traceanalyzer.gate.outcomes import (
    FAILED,
    OF_RANKS,
    PASSED,
    SKIPPED,
    UNKNOWN,
    Outcome,
    after,
    fails,
    is_failed,
    not_available,
    over_ranks,
    said_of_limit,
)


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
    rows = narrowed(of_steps(result.to_frame(), results), gate)
    if rows.empty:
        return [not_available(gate, run, f"{analysis} has no row for it")]
    extra = [key for key in result.keys if key not in ("rank", "step")]
    return [_judge(gate, own, column, extra, run) for _, own in _cases(rows, extra)]


def qualified(gate: Gate, outcome: Outcome, lack: str | None, doubts: Sequence[str]) -> Outcome:
    """What becomes of a gate, whatever it is on: a figure that the report doubts is not judged.

    Args:
        gate: the condition.
        outcome: of the figure as it stands.
        lack: which ranks it does not see; of a figure that passes without them nothing is known.
        doubts: why the report marks the figure.
    """
    if lack and outcome.status == PASSED:
        return not_available(gate, outcome.run, f"{lack}; over the others {outcome.message}", outcome.case)
    status = outcome.status if outcome.status == SKIPPED or not doubts else UNKNOWN
    why = f"in doubt, so it {UNKNOWN}: {' '.join(doubts)}" if doubts else None
    return replace(outcome, status=status, message="; ".join(text for text in (outcome.message, lack, why) if text))


def of_steps(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Rows of the headline's steps where a table has steps; without such steps the rows of no step."""
    if "step" not in frame:
        return frame
    shared = steps_of(results["headline"], results["steps"])
    return frame[frame["step"].isin(shared)] if shared else frame[frame["step"].isna()]


def narrowed(frame: pd.DataFrame, gate: Gate) -> pd.DataFrame:
    """The rows whose keys have the wanted values."""
    for key, wanted in gate.where:
        frame = frame[frame[key].astype("object").map(str, na_action="ignore") == wanted]
    return frame


def _cases(rows: pd.DataFrame, extra: list[str]) -> Iterable[tuple[object, pd.DataFrame]]:
    return rows.groupby(extra, dropna=False, sort=False, observed=True) if extra else [(None, rows)]


def _judge(gate: Gate, rows: pd.DataFrame, column: str, extra: list[str], run: str) -> Outcome:
    case = ", ".join(f"{key} {rows[key].iloc[0]}" for key in extra)
    is_absent = rows[column].isna()
    if is_absent.any() and not (gate.is_optional and not is_absent.all()):
        return not_available(gate, run, f"the trace does not tell it{_of_ranks(rows[is_absent])}", case)
    known = rows[~is_absent]
    values = over_ranks(known[column].astype(float), gate.scope)
    failing = fails(gate, values)
    failed = is_failed(gate, failing)
    picked = known.loc[failing.index[failing]] if gate.scope in OF_RANKS else known
    is_a_row_a_rank = "rank" in known and known["rank"].is_unique
    figure = said_of_limit(gate, values, failing, "ranks" if is_a_row_a_rank else "rows")
    kept = [name for name in ("rank", "step", *extra) if name in picked]
    return Outcome(
        gate.text, run, FAILED if failed else PASSED, f"{gate.metric}{after(case)}: {figure}",
        tuple(plain_rows(picked[[*kept, column]])) if failed else (), case,
    )  # fmt: skip


def _of_ranks(rows: pd.DataFrame) -> str:
    return f" for rank {', '.join(str(rank) for rank in rows['rank'].unique())}" if "rank" in rows else ""
