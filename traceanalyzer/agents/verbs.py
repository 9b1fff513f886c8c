"""The questions that can be asked of a folder of traces."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any

import pandas as pd

from traceanalyzer import filters
from traceanalyzer.agents.answer import Answer, could_not, of_rows
from traceanalyzer.agents.operations import operations
from traceanalyzer.agents.snapshots import of_snapshots
from traceanalyzer.agents.workspace import Workspace
from traceanalyzer.analyses import Result
from traceanalyzer.analyses.replay.answer import answer as answered
from traceanalyzer.analyses.replay.written import read_change
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.findings import Finding
from traceanalyzer.findings.hosts import slow_hosts
from traceanalyzer.findings.late import lateness
from traceanalyzer.findings.uneven import hidden
from traceanalyzer.meaning.listed import named, numbered
from traceanalyzer.meaning.severities import SEVERITIES
from traceanalyzer.report.contents import Report
from traceanalyzer.report.words import care, verdict
from traceanalyzer.report.words.parts import split

FINDING_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "id": "Rule and what it is about: the same in every run over the same files.",
        "severity": f"{', '.join(SEVERITIES[:-1])} or {SEVERITIES[-1]}.",
        "title": "One sentence with its figures.",
        "recommendation": "What to do.",
        "caveat": "When it may not hold.",
        "gain_ns": "What mending it gains of a mean step (of the capture, without steps), ns.",
        "also": "Other signs of the same cause.",
        "table": "Ask `table` for this one to see more.",
        "evidence": "Rows behind it.",
    }
)


WHAT_IF_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "id": "The changes, made together.",
        "of": "What the times are of: a mean complete step, else the capture.",
        "before_ns": "As recorded, ns.",
        "after_ns": "Replayed with the changes, ns.",
        "gain_ns": "Before − after, never negative, ns.",
        "most_gain_ns": "The same without the start delays that no recorded dependency explains, ns.",
        "error_ns": "By how much the replay without a change misses the recording, ns.",
        "error_pct": "The same in per cent of before.",
        "unmatched_ns": "Communication in it whose partners are not known, ns.",
        "is_bound": "The gain is a bound, no forecast.",
        "is_lower_bound": "The gain may be more: waits for unknown partners, or start delays without a cause, stay.",
        "unprofiled_ns": "Before, without what recording takes the hosts, an estimate, ns; absent where not known.",
        "unprofiled_after_ns": "After, without that, ns.",
        "unprofiled_afters_ns": "Shortest and longest step after the change that a run without the profiler may have.",
        "unprofiled_gains_ns": "Least and most gain of that step, by what recording may take the hosts.",
        "path_pct_before": "Per cent of the critical path by category, as recorded.",
        "path_pct_after": "The same after the changes.",
    }
)

_OF_LATENESS = tuple(
    rule.__name__ for rule in (lateness.late_ranks, hidden.hidden_late, slow_hosts.slow_hosts, slow_hosts.busy_hosts)
)


def summary(workspace: Workspace, folder: str) -> Answer:
    """The verdict in sentences, the `headline` table, and the notes of the report's integrity section."""
    report = workspace.report(folder)
    result = report.results["headline"]
    advice = verdict.advice(report.findings)
    first = [f"What to do first: {advice}"] if advice else []
    said = [f"{report.label}:", *verdict.sentences(report, split(report.results)), *first]
    return _of_result("headline", result, _frame(result), said=said, notes=care.sentences(report))


def findings(workspace: Workspace, folder: str, top: int = 10, cursor: int = 0) -> Answer:
    """The report's findings in their order, five rows of evidence each."""
    report = workspace.report(folder)
    rows = [_of_finding(finding) for finding in report.findings]
    return of_rows(
        rows, FINDING_COLUMNS, cursor=cursor, top=top, notes=care.sentences(report),
        none="every rule was asked and none speaks",
    )  # fmt: skip


def tables(workspace: Workspace, folder: str, cursor: int = 0) -> Answer:
    """A row for each Result that has a table."""
    rows = [
        {
            "id": name,
            "rows": len(result),
            "title": result.title,
            "row": result.meaning(),
            "key": ", ".join(result.keys),
        }
        for name, result in workspace.report(folder).results.items()
        if not result.is_event_copy
    ]
    columns = {
        "id": "Name, as `table` takes it.",
        "rows": "How many there are.",
        "title": "Heading.",
        "row": "What a row is.",
        "key": "Columns that together name a row.",
    }
    return of_rows(rows, columns, cursor=cursor)


def table(
    workspace: Workspace,
    folder: str,
    name: str,
    where: Sequence[str] = (),
    sort: str | None = None,
    top: int | None = None,
    cursor: int = 0,
) -> Answer:
    """Rows of a Result that pass the conditions (`filters.chosen`), sorted by a column, largest first."""
    results = workspace.report(folder).results
    known = [one for one, result in results.items() if not result.is_event_copy]
    if name not in known:
        near = get_close_matches(name, known, 3) or [one for one in known if name in one][:3]
        said = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise UsageError(f"no table {name!r}; {said}")
    result = results[name]
    frame = _frame(result)
    if frame.empty:
        return could_not(f"the table has no rows for these traces. {result.meaning()}")
    frame = filters.chosen(frame, where)
    if sort is not None:
        if sort not in frame:
            raise UsageError(f"no column {sort!r}; there are {', '.join(frame.columns)}")
        frame = frame.sort_values(sort, ascending=False, kind="stable")
    return _of_result(name, result, frame, top=top, cursor=cursor, none=f"no row of {name} has {' and '.join(where)}")


def steps(workspace: Workspace, folder: str, rank: int | None = None, cursor: int = 0) -> Answer:
    """The `steps` table, of one rank or of all."""
    if rank is not None:
        _check_rank(workspace.report(folder), rank)
    where = () if rank is None else (f"rank={rank}",)
    return table(workspace, folder, "steps", where, cursor=cursor)


def why_waiting(workspace: Workspace, folder: str, rank: int, step: int | None = None, cursor: int = 0) -> Answer:
    """Rows of `call_waits` in which the rank waited, and the findings about late ranks."""
    report = workspace.report(folder)
    calls = _frame(report.results["call_waits"])
    of_rank = calls[calls["rank"] == rank]
    if of_rank.empty:
        _check_rank(report, rank)
        return could_not(f"rank {rank} has no communication calls in these traces")
    if step is not None:
        known = of_rank["step"].dropna().astype(int).tolist()
        if step not in known:
            steps_known = f"it has in {numbered('step', known)}" if known else "its steps are not known"
            raise UsageError(f"rank {rank} has no communication in step {step}; {steps_known}")
        of_rank = of_rank[of_rank["step"] == step]
    waited = of_rank[of_rank["wait_ns"].fillna(0) > 0].sort_values("wait_ns", ascending=False)
    if waited.empty and not of_rank["is_matched"].any():
        reasons = of_rank["why_not_split"].dropna().unique().tolist() or ["no call is matched with another rank's"]
        return could_not(f"its calls cannot be split into wait and transfer: {'; '.join(map(str, reasons))}")
    about = [
        finding.title for finding in report.findings if "call_waits" in finding.sources or finding.rule in _OF_LATENESS
    ]
    return _of_result(
        "call_waits", report.results["call_waits"], waited, cursor=cursor, said=about, none="it waited for nobody"
    )


def _check_rank(report: Report, rank: int) -> None:
    ranks = _frame(report.results["ranks"])["rank"].astype(int).tolist()
    if rank not in ranks:
        raise UsageError(f"no rank {rank}; the run has {numbered('rank', ranks)}")


def inspect(
    workspace: Workspace,
    folder: str,
    rank: int,
    operation: str,
    step: int | None = None,
    top: int = 20,
    cursor: int = 0,
) -> Answer:
    """See `operations.operations`: it reads the rank's events again."""
    return operations(workspace.traces(folder, rank), rank, operation, step=step, top=top, cursor=cursor)


def what_if(workspace: Workspace, folder: str, changes: Sequence[str]) -> Answer:
    """The mean step before and after changes that are made together; see docs/replay.md for how they are written."""
    made = answered(workspace.report(folder).results, [read_change(text) for text in changes])
    row = {key: value for key, value in made.to_dict().items() if not isinstance(value, list) and key != "schedule"}
    return of_rows([{"id": ", ".join(map(str, made.changes)), **row}], WHAT_IF_COLUMNS, said=made.lines())


def compare(workspace: Workspace, base: str, other: str, cursor: int = 0) -> Answer:
    """What differs, the comparison's sentences, and its `metrics`."""
    from traceanalyzer.diff import compare as compared  # noqa: PLC0415 - the comparison is needed here alone
    from traceanalyzer.diff.sources import SourceOptions, read_sides  # noqa: PLC0415
    from traceanalyzer.report.comparison import verdict as of_comparison  # noqa: PLC0415

    paths = [str(workspace.place(folder)) for folder in (base, other)]
    load = replace(SourceOptions().load, follows_links=workspace.follows_links)
    made = compared(read_sides(paths, SourceOptions(load, jobs=workspace.jobs)))
    frame = made.metrics.astype(object).where(made.metrics.notna(), None)
    rows = [{"id": f"{row['metric']}/{row['run']}", **row} for row in frame.to_dict("records")]
    columns = {str(name): str(name) for name in frame.columns}
    said = [made.different, *of_comparison.sentences(made)]
    return of_rows(rows, columns, cursor=cursor, said=said, notes=made.fairness.notes)


def memory(workspace: Workspace, folder: str, cursor: int = 0) -> Answer:
    """The `memory` table, else what memory snapshots in the folder tell."""
    snapshots = workspace.snapshots(folder)
    try:
        made = table(workspace, folder, "memory", cursor=cursor)
    except InputError:
        if not snapshots:
            raise
        return of_snapshots(snapshots, cursor)
    if made.rows and snapshots:
        files = named([one.name for one in snapshots])
        note = f"Of memory snapshots beside the traces ({files}) nothing is told here: ask for memory of such a file."
        return replace(made, notes=(*made.notes, note))
    if made.rows or not snapshots:
        return made if made.rows else could_not(_NO_MEMORY)
    return of_snapshots(snapshots, cursor)


_NO_MEMORY = "these traces record no memory; record with profile_memory=True, or a snapshot beside them"

Verb = Callable[..., Answer]

VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        verb.__name__.replace("_", "-"): verb
        for verb in (summary, findings, tables, table, steps, why_waiting, inspect, what_if, compare, memory)
    }
)
"""By the name that the command line and MCP give them."""


def ask(workspace: Workspace, verb: str, **given: Any) -> Answer:
    """The answer to one question; traces that cannot be analysed are an answer too.

    Raises:
        UsageError: the question itself makes no sense.
    """
    try:
        return VERBS[verb](workspace, **given)
    except InputError as error:
        return could_not(str(error))


def parameters(verb: str) -> list[Parameter]:
    """What a question takes beside the workspace."""
    return list(signature(VERBS[verb]).parameters.values())[1:]


def _of_finding(finding: Finding) -> dict[str, Any]:
    """What is known of `FINDING_COLUMNS`."""
    about = finding.about or finding.title
    row = {
        "id": f"{finding.rule}/{about}",
        "severity": finding.severity,
        "gain_ns": finding.gain_ns,
        "title": finding.title,
        "recommendation": finding.recommendation,
        "caveat": finding.caveat,
        "also": [one.title for one in finding.also] or None,
        "table": finding.table,
        "evidence": [dict(one) for one in finding.evidence[:5]] or None,
    }
    return {key: row[key] for key in FINDING_COLUMNS if row[key] is not None}


def _of_result(name: str, result: Result, frame: pd.DataFrame, **more: Any) -> Answer:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    ids = [f"{name}/" + ",".join(f"{key}={row[key]}" for key in result.keys) for row in rows]
    shown = [
        {"id": id_, **{str(key): value for key, value in row.items() if value is not None}}
        for id_, row in zip(ids, rows, strict=True)
    ]
    return of_rows(shown, {key: column.definition for key, column in result.columns.items()}, **more)


def _frame(result: Result) -> pd.DataFrame:
    return result.to_frame()
