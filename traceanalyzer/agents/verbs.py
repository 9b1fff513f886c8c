"""The questions that can be asked of a folder of traces, on a command line and as tools of an MCP server."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from inspect import Parameter, Signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

import msgspec
import pandas as pd
from msgspec import Struct

from traceanalyzer import __version__
from traceanalyzer.agents import QUESTIONS
from traceanalyzer.analyses.base import chosen, plain_rows
from traceanalyzer.analyses.memory import Memory
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.replay.changes import read_change
from traceanalyzer.discovery import Found, discover, find_snapshots, of_files
from traceanalyzer.errors import InputError, TraceAnalyzerError, UsageError, needs_extra
from traceanalyzer.findings import Finding
from traceanalyzer.findings.what_if import answer as answered
from traceanalyzer.job import run_info
from traceanalyzer.job.run_info import facts_of_run
from traceanalyzer.loading import LoadOptions, label_of, load, other_runs, parse_ranks
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import SEVERITIES, named, numbered
from traceanalyzer.model import RankTrace, TraceSet
from traceanalyzer.report import words
from traceanalyzer.report.contents import Report, build
from traceanalyzer.report.words import split
from traceanalyzer.report.writers.tables import finding_as_json, index_of
from traceanalyzer.scale import summarise
from traceanalyzer.selection import Selection, chosen_steps
from traceanalyzer.snapshots import examine_readable, sentences
from traceanalyzer.snapshots.comparison import job_of, run_json
from traceanalyzer.snapshots.reading import rank_of

# What an answer is, and how a long one is given in pieces.


Selector = int | str | None
"""Ranks or steps as `--ranks` and `--steps` are written: `3`, `0,2-3`, `2:4`, `last`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What may be given with a question (`questions.QUESTIONS` says what with which).

    Attributes:
        folder: of traces; `base` and `other` are those that are compared.
        name: of a table.
        operation: text in the name of a GPU operation or its operator.
        changes: of a what-if, such as `rank 7=peers`.
        ranks: these alone; `steps` likewise.
        where: conditions such as `rank=0`.
        sort: column, largest first.
        top: most rows.
        cursor: as the answer before says.
    """

    folder: str = ""
    base: str = ""
    other: str = ""
    name: str = ""
    operation: str = ""
    changes: Sequence[str] = ()
    ranks: Selector = None
    steps: Selector = None
    where: Sequence[str] = ()
    sort: str | None = None
    top: int | None = None
    cursor: int = 0

    @property
    def piece(self) -> dict[str, Any]:
        """Which rows of the answer."""
        return {"cursor": self.cursor, "top": self.top}


OK, NOTHING_FOUND, COULD_NOT_LOOK = "ok", "nothing_found", "could_not_look"

MOST_CHARACTERS = 20_000
"""Of an answer as JSON: fewer than 8,000 tokens, also where it is all figures and punctuation (2.5 characters each)."""

_LONGEST_TEXT = MOST_CHARACTERS // 10
"""A longer text is cut: a file's content must not fill an answer."""

_PART = MOST_CHARACTERS // 5
"""Most characters of the answer's sentences, of its notes, and of its columns' definitions; what is beyond is left out.

A tenth of it is kept free for what stands around the rows.
"""


class Answer(Struct, frozen=True, omit_defaults=True):
    """What a question gives.

    Attributes:
        status: `ok`; `nothing_found`: it was looked at and there is none; `could_not_look`: `why` says what is missing.
        said: sentences that the tables carry.
        why: reason, unless the status is `ok`.
        columns: of the rows: definition, which ends in the unit where the name does not.
        rows: plain values, each row with an `id` that is the same in every run over the same files.
        total_rows: in all pieces.
        cursor: give it back to get the rows that follow; `None` when these are the last.
        notes: what to know before trusting the figures.
    """

    status: str
    said: tuple[str, ...] = ()
    why: str | None = None
    columns: dict[str, str] = {}
    rows: tuple[Mapping[str, Any], ...] = ()
    total_rows: int = 0
    cursor: int | None = None
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """The answer as JSON; what is empty is left out."""
        return json.dumps(msgspec.to_builtins(self), ensure_ascii=False)


def of_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    cursor: int = 0,
    top: int | None = None,
    said: Sequence[str] = (),
    notes: Sequence[str] = (),
    none: str = "no row matches",
) -> Answer:
    """Rows from `cursor` on, as many as fit (and no more than `top`); `none` is why there may be none."""
    said, notes = _sentences(said), _sentences(notes)
    if not rows:
        return Answer(NOTHING_FOUND, said, str(_short(none)), notes=notes)
    if cursor < 0 or (top is not None and top < 1):
        raise UsageError("cursor is that of the answer before, or 0; top is 1 or more")
    if cursor >= len(rows):
        raise UsageError(f"cursor {cursor:,} is beyond the last of {len(rows):,} rows")
    shown = rows[cursor : None if top is None else cursor + top]
    definitions = {name: columns[name] for name in shown[0] if name in columns}
    if _length(definitions) > _PART:
        definitions = dict.fromkeys(definitions, "see `tables`, or docs/reference/tables.md")
    room = MOST_CHARACTERS - _PART // 10 - _length([*said, *notes]) - _length(definitions)
    kept = _fitting(shown, room) or _fitting([_squeezed(shown[0])], room)
    end = cursor + len(kept)
    more = end if kept and end < len(rows) else None
    return Answer(OK, said, None, definitions if kept else {}, kept, len(rows), more, notes)


def could_not(why: str, status: str = COULD_NOT_LOOK) -> Answer:
    """Nothing could be looked at."""
    return Answer(status, why=str(_short(why)))


def _sentences(sentences: Sequence[str]) -> tuple[str, ...]:
    """The first sentences, as many as have room, and how many more there are."""
    kept = _fitting(sentences, _PART)
    left = len(sentences) - len(kept)
    return (*kept, f"and {left} more, which the report has") if left else kept


def _fitting(items: Sequence[Any], room: int) -> tuple[Any, ...]:
    """The first items, as many as have room, their texts cut."""
    kept = []
    for item in map(_short, items):
        room -= _length(item) + 2
        if room < 0:
            break
        kept.append(item)
    return tuple(kept)


def _short(value: Any, longest: int = _LONGEST_TEXT) -> Any:
    """The value with texts cut, also those inside lists and rows."""
    if isinstance(value, str):
        return value if len(value) <= longest else value[:longest] + "…"
    if isinstance(value, Mapping):
        return {key: _short(one, longest) for key, one in value.items()}
    return [_short(one, longest) for one in value] if isinstance(value, list | tuple) else value


def _squeezed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row that alone is too long, without lists, its texts cut so that they fit together."""
    plain = {key: value for key, value in row.items() if not isinstance(value, list | dict)}
    cut: dict[str, Any] = _short(plain, _PART // len(row))
    return cut


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))


# Single GPU operations: when they ran, who launched them, how long they stood in the queue.


COLUMNS = {
    "id": "Rank and place among its GPU operations by start: the same in every run over the same files.",
    "name": "Kernel or copy.",
    "kind": "compute, comm or copy.",
    "operator": "Operator that launched it.",
    "step": "Number of the step in which the host launched it.",
    "stream": "CUDA stream.",
    "start_ns": "Start, ns after the rank's first GPU operation.",
    "duration_ns": "End minus start.",
    "queued_ns": "Start minus the end of the call that launched it; absent without one.",
    "gap_before_ns": "Time before it in which nothing ran on the GPU.",
}


def _operations(trace: RankTrace, text: str, steps: Selector) -> pd.DataFrame:
    def named_by(table: pd.DataFrame, column: str, kind: str, rows: Any) -> Any:
        """A column of another table by its rows; absent at row -1."""
        return table[column].astype(kind).reindex(rows).array

    ops, numbers = trace.gpu_ops, trace.steps["step"].to_numpy()
    starts, ends = ops["start_ns"], ops["end_ns"]
    table = pd.DataFrame(
        {
            "id": [f"{trace.rank}:{row}" for row in range(len(ops))],
            "name": ops["name"].astype(str),
            "kind": ops["kind"].astype(str),
            "operator": named_by(trace.host_ops, "name", "str", OperatorTree.of(trace).owner),
            "step": named_by(trace.steps, "step", "Int64", trace.op_step),
            "stream": ops["stream"],
            "start_ns": starts - starts.min(),
            "duration_ns": ends - starts,
            "queued_ns": starts.array - named_by(trace.api_calls, "end_ns", "Int64", ops["launch"]),
            "gap_before_ns": (starts - ends.cummax().shift(fill_value=starts.min())).clip(lower=0),
        }
    )
    is_named = table["name"].str.contains(text, case=False, regex=False) | (table["id"] == text)
    is_named |= table["operator"].astype("string").str.contains(text, case=False, regex=False).fillna(value=False)
    if steps is not None and Selection(steps=str(steps)).steps != "all":
        wanted = chosen_steps(trace.steps, str(steps))["step"]
        if wanted.empty:
            known = numbered("step", numbers.tolist()) if len(numbers) else "no steps"
            raise UsageError(f"rank {trace.rank} has no steps {steps}; it has {known}")
        is_named &= table["step"].isin(wanted)
    return table[is_named]


# What PyTorch's memory snapshots in a folder answer to the question about memory.


_FILE = "Name of the snapshot, whose rank is not known where it has none."


def of_snapshots(paths: Sequence[Path], asked: Asked) -> Answer:
    """A row a snapshot with its columns of the `memory` table, and what the snapshots tell.

    Raises:
        InputError: none can be read.
    """
    wanted = parse_ranks(None if asked.ranks is None else str(asked.ranks))
    examined, skipped = examine_readable([path for path in paths if wanted is None or rank_of(path) in wanted])
    info, notes = run_info.read_or_note(run_json(paths))
    job = job_of(examined, info, None)
    rows = []
    for one, row in zip(examined, plain_rows(job.memory.to_frame()), strict=True):
        known = row | {"rank": one.snapshot.rank, "file": one.snapshot.path.name}
        filled = {str(name): value for name, value in known.items() if value is not None}
        rows.append({"id": f"memory/{one.snapshot.path.name}", **filled})
    columns = {name: column.definition for name, column in Memory.columns.items()} | {"file": _FILE}
    said = [*job.sentences, *sentences(examined)]
    return of_rows(rows, columns, **asked.piece, said=said, notes=[*skipped, *notes])


# Where traces may be read from, and reports that were made already.


MOST_KEPT = 8
"""Reports that stay in memory; the one that was asked for longest ago goes first."""


@dataclass(slots=True)
class Workspace:
    """Reads traces below its roots only, writes nothing, and remembers the reports that it made.

    Attributes:
        roots: folders that may be looked into.
        jobs: processes; `None` as many as suit.
        follows_links: whether links out of a folder of traces are read, which may lead out of the roots.
        is_open: whether any place may be read, as for who has a command line; relative ones are below the roots.
    """

    roots: Sequence[Path]
    jobs: int | None = None
    follows_links: bool = False
    is_open: bool = False
    _reports: dict[tuple[object, ...], Report] = field(default_factory=dict)

    def place(self, folder: str) -> Path:
        """A path below the roots; a relative one is looked for in each of them.

        Raises:
            UsageError: it lies elsewhere, by `..` or a link too, or does not exist.
        """
        given, shown = Path(folder), _short(folder.encode(errors="replace").decode())
        for root in self.roots:
            with suppress(OSError, ValueError):  # too long for a path, or with a NUL
                path = (root / given).resolve(strict=True)
                if self.is_open or path.is_relative_to(root.resolve()):
                    return path
        if self.is_open:
            raise UsageError(f"{shown}: no such folder")
        roots = ", ".join(str(root) for root in self.roots)
        raise UsageError(f"{shown}: no such folder below {roots}")

    def report(self, folder: str) -> Report:
        """The report of the newest run of a folder; read again when a file has changed.

        Raises:
            InputError: nothing there can be analysed.
            UsageError: the folder lies outside the roots.
        """
        path = self.place(folder)
        found = self._found(path)
        key = _identity(found)
        made = self._reports.pop(key, None) or self._made(found, label_of(path))
        self._reports[key] = made  # last in, last out
        for old in [*self._reports][:-MOST_KEPT]:
            del self._reports[old]
        return made

    def traces(self, folder: str, ranks: str | None) -> TraceSet:
        """The events of these ranks of the newest run; without any, of the first."""
        path = self.place(folder)
        first = min((rank for capture in self._found(path).runs[-1].captures for rank in capture.ranks), default=0)
        return load(path, ranks=first if ranks is None else ranks, follow_links=self.follows_links)

    def snapshots(self, folder: str) -> list[Path]:
        """Memory snapshots below a folder, or the file itself if it is one."""
        return find_snapshots(self.place(folder), follows_links=self.follows_links)

    def _found(self, path: Path) -> Found:
        return discover(path, follows_links=self.follows_links) if path.is_dir() else of_files([path])

    def _made(self, found: Found, label: str) -> Report:
        run = found.runs[-1]
        facts = facts_of_run(run.info, [capture.path for capture in run.captures])
        options = LoadOptions(follows_links=self.follows_links)
        summary = summarise(found, run, options, jobs=self.jobs, **facts.known)
        return build(summary, label, facts.notes, (*other_runs(found), *facts.remarks), run_info=facts.info)


def _identity(found: Found) -> tuple[object, ...]:
    """Changes when a file of the newest run does."""
    files = [capture.path for capture in found.runs[-1].captures]
    stats = [(path, path.stat()) for path in files]
    return tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats)


FINDING_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "id": "Kind of finding.",
        "severity": f"{', '.join(SEVERITIES[:-1])} or {SEVERITIES[-1]}, by the lower end of the saving.",
        "headline": "The bottleneck.",
        "why": "Evidence in one sentence.",
        "fix": "What to change.",
        "saves": "What that saves of a step without the profiler, as an interval in ms.",
        "confidence": "Level, and what limits it.",
        "what_if": "The command that replays the change.",
        "scope": "Ranks and steps.",
        "also": "Other signs of the same cause.",
        "table": "Ask `table` for this one to see more.",
        "evidence": "Rows behind it.",
    }
)
"""Of the fields of `summary.json`."""


WHAT_IF_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "id": "The changes, made together.",
        "of": "What the times are of: a mean complete step, else the capture.",
        "ms": "What is saved, ms.",
        "low_ms": "Lower end of the interval.",
        "high_ms": "Upper end of the interval.",
        "before_ms": "The step without the change.",
        "after_ms": "The step with it.",
        "percent": "Saved, in percent of before.",
        "is_unprofiled": "The times are without the profiler.",
        "confidence": "The interval in words, and what makes it wide.",
        "error_ms": "By how much the replay without a change misses the recording.",
        "path_pct_before": "Percent of the critical path by category.",
        "path_pct_after": "The same after the changes.",
    }
)


def summary(workspace: Workspace, asked: Asked) -> Answer:
    """The verdict in sentences, the `headline` table, and the notes of the report's integrity section."""
    report = workspace.report(asked.folder)
    said = [f"{report.label}:", *words.sentences(report, split(report.results))]
    notes = [*report.remarks, *words.care_sentences(report)]
    return _of_result(report, "headline", _selected(report, "headline", asked), asked, said=said, notes=notes)


def findings(workspace: Workspace, asked: Asked) -> Answer:
    """The report's findings in their order, five rows of evidence each."""
    report = workspace.report(asked.folder)
    notes = [*report.remarks, *words.care_sentences(report)]
    none = "nothing to change was found"
    return of_rows(
        [_of_finding(one) for one in report.findings], FINDING_COLUMNS, **asked.piece, notes=notes, none=none
    )


def tables(workspace: Workspace, asked: Asked) -> Answer:
    """A row for each Result that has a table."""
    columns = {
        "id": "Name, as `table` takes it.",
        "rows": "How many there are.",
        "title": "Heading.",
        "row": "What a row is.",
        "key": "Columns that together name a row.",
    }
    results = workspace.report(asked.folder).results
    index = index_of({name: result for name, result in results.items() if not result.is_event_copy})
    return of_rows(plain_rows(index.rename(columns={"table": "id"})), columns, **asked.piece)


def table(workspace: Workspace, asked: Asked) -> Answer:
    """Rows of a Result that pass the conditions (`chosen`), sorted by a column, largest first."""
    report, name = workspace.report(asked.folder), asked.name
    known = [one for one, result in report.results.items() if not result.is_event_copy]
    if name not in known:
        near = get_close_matches(name, known, 3) or [one for one in known if name in one][:3]
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise UsageError(f"no table {name!r}; {hint}")
    if not len(report.results[name]):
        return could_not(f"the table has no rows for these traces. {report.results[name].meaning()}")
    frame = chosen(_selected(report, name, asked), asked.where)
    if asked.sort is not None:
        if asked.sort not in frame:
            raise UsageError(f"no column {asked.sort!r}; there are {', '.join(frame.columns)}")
        frame = frame.sort_values(asked.sort, ascending=False, kind="stable")
    given = [f"{one} {text}" for one, text in (("ranks", asked.ranks), ("steps", asked.steps)) if text is not None]
    return _of_result(report, name, frame, asked, none=f"no row of {name} has {' and '.join([*asked.where, *given])}")


def steps(workspace: Workspace, asked: Asked) -> Answer:
    """The `steps` table."""
    return table(workspace, replace(asked, name="steps"))


def why_waiting(workspace: Workspace, asked: Asked) -> Answer:
    """Rows of `call_waits` in which these ranks waited, and the findings about stragglers."""
    report = workspace.report(asked.folder)
    of_ranks = _selected(report, "call_waits", replace(asked, steps=None))
    if of_ranks.empty:
        whose = "these traces have" if asked.ranks is None else f"ranks {asked.ranks} have"
        return could_not(f"{whose} no communication calls")
    of_steps = _selected(report, "call_waits", asked)
    if of_steps.empty:
        known = of_ranks["step"].dropna().astype(int).unique().tolist()
        there = f"there is in {numbered('step', known)}" if known else "the steps are unknown"
        raise UsageError(f"no communication in steps {asked.steps}; {there}")
    waited = of_steps[of_steps["wait_ns"].fillna(0) > 0].sort_values("wait_ns", ascending=False)
    if waited.empty and not of_steps["is_matched"].any():
        reasons = of_steps["why_not_split"].dropna().unique().tolist() or ["no call is matched with another rank's"]
        return could_not(f"its calls cannot be split into wait and transfer: {'; '.join(map(str, reasons))}")
    about = [finding.text for finding in report.findings if "call_waits" in finding.sources]
    return _of_result(report, "call_waits", waited, asked, said=about, none="no rank waited")


def _selected(report: Report, name: str, asked: Asked) -> pd.DataFrame:
    """Rows of a Result, of the ranks and steps that are asked for.

    Raises:
        UsageError: the run has no such rank, or the table has no such column.
    """
    frame: pd.DataFrame = report.results[name].to_frame()
    for column, text in (("rank", asked.ranks), ("step", asked.steps)):
        if text is not None and column not in frame:
            raise UsageError(f"this table has no column {column}: leave out --{column}s")
    if asked.ranks is not None:
        known = report.results["ranks"].to_frame()["rank"].astype(int).tolist()
        wanted = parse_ranks(str(asked.ranks)) or frozenset()
        if absent := sorted(wanted - {*known}):
            raise UsageError(f"no {numbered('rank', absent)}; the run has {numbered('rank', known)}")
        frame = frame[frame["rank"].isin(wanted)]
    if asked.steps is not None and Selection(steps=str(asked.steps)).steps != "all":
        recorded = report.results["steps"].to_frame()
        wanted_steps = chosen_steps(recorded.assign(is_partial=~recorded["is_complete"]), str(asked.steps))
        frame = frame[frame["step"].isin(wanted_steps["step"].unique())]
    return frame


def inspect(workspace: Workspace, asked: Asked) -> Answer:
    """Operations whose name or operator contains the text (or whose id it is), longest first.

    It reads the events of these ranks (default: the first) again.

    Raises:
        UsageError: a rank has none of these steps.
    """
    traces = workspace.traces(asked.folder, None if asked.ranks is None else str(asked.ranks))
    found = pd.concat([_operations(trace, asked.operation, asked.steps) for trace in traces.ranks])
    found = found.sort_values("duration_ns", ascending=False, kind="stable")
    said = [f"{len(found):,} operations, {time_text(found['duration_ns'].sum())} altogether."] if len(found) else []
    where = numbered("rank", [trace.rank for trace in traces.ranks])
    none = f"no GPU operation of {where} is called {asked.operation!r}, nor its operator"
    notes = [*traces.notes, *(f"Skipped {sentence}" for sentence in words.skipped(traces.skipped))]
    return of_rows(
        plain_rows(found),
        COLUMNS,
        asked.cursor,
        20 if asked.top is None else asked.top,
        said=said,
        none=none,
        notes=notes,
    )


def what_if(workspace: Workspace, asked: Asked) -> Answer:
    """The mean step before and after changes that are made together; see docs/what_if.md for how they are written."""
    made = answered(workspace.report(asked.folder).results, [read_change(text) for text in asked.changes])
    row = {key: value for key, value in made.to_dict().items() if not isinstance(value, list) and key != "schedule"}
    return of_rows([{"id": ", ".join(map(str, made.changes)), **row}], WHAT_IF_COLUMNS, said=made.lines())


def compare(workspace: Workspace, asked: Asked) -> Answer:
    """What differs, the comparison's sentences, and its `metrics`."""
    from traceanalyzer.diff import compare as compared  # noqa: PLC0415 - the comparison is needed here alone
    from traceanalyzer.diff.metrics import COLUMNS as COLUMNS_OF_FIGURES  # noqa: PLC0415
    from traceanalyzer.diff.sources import SourceOptions, read_sides  # noqa: PLC0415
    from traceanalyzer.report.comparison import sentences  # noqa: PLC0415

    paths = [str(workspace.place(folder)) for folder in (asked.base, asked.other)]
    load = replace(SourceOptions().load, follows_links=workspace.follows_links)
    made = compared(read_sides(paths, SourceOptions(load, jobs=workspace.jobs)))
    rows = [{"id": f"{row['metric']}/{row['run']}", **row} for row in plain_rows(made.metrics)]
    said = [made.different, *sentences.verdict_sentences(made)]
    return of_rows(rows, COLUMNS_OF_FIGURES, **asked.piece, said=said, notes=made.fairness.notes)


def memory(workspace: Workspace, asked: Asked) -> Answer:
    """The `memory` table, else what memory snapshots in the folder tell."""
    snapshots = workspace.snapshots(asked.folder)
    try:
        made = table(workspace, replace(asked, name="memory"))
    except InputError:
        if not snapshots:
            raise
        made = Answer(OK)
    if not made.rows:
        return of_snapshots(snapshots, asked) if snapshots else could_not(_NO_MEMORY)
    files = named([one.name for one in snapshots])
    note = f"Of memory snapshots beside the traces ({files}) nothing is shown here: run memory on such a file."
    return msgspec.structs.replace(made, notes=(*made.notes, note)) if snapshots else made


_NO_MEMORY = "these traces record no memory; record with profile_memory=True, or a snapshot beside them"

VERBS: Mapping[str, Callable[[Workspace, Asked], Answer]] = MappingProxyType(
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
        return VERBS[verb](workspace, Asked(**given))
    except InputError as error:
        return could_not(str(error))


def _of_finding(finding: Finding) -> dict[str, Any]:
    """As `summary.json` has it, without what is empty; five rows of evidence."""
    row = finding_as_json(finding) | {"also": [one.headline for one in finding.also]}
    row["evidence"] = row["evidence"][:5]
    return {key: value for key, value in row.items() if value}


def _of_result(report: Report, name: str, frame: pd.DataFrame, asked: Asked, **more: Any) -> Answer:
    """Rows of a Result."""
    result = report.results[name]
    rows = [
        {
            "id": f"{name}/" + ",".join(f"{key}={row[key]}" for key in result.keys),
            **{key: value for key, value in row.items() if value is not None},
        }
        for row in plain_rows(frame)
    ]
    columns = {key: column.definition for key, column in result.columns.items()}
    return of_rows(rows, columns, **asked.piece, **more)


USAGE_ERROR = "usage_error"
"""Status when the question itself makes no sense: `why` says what to ask instead."""

INSTRUCTIONS = """Profiles of multi-GPU jobs (PyTorch profiler, Nsight Systems): where each rank's time went, and why.
Begin with `summary` and `findings` of a folder of traces. Times are integer nanoseconds in columns that end in _ns; a
value that is absent is unknown, not 0. status tells `nothing_found` (looked at, there is none) from `could_not_look`
(why says what the traces lack). Give `cursor` back to read on. Say the figures' window and unit when you cite them."""


def server(workspace: Workspace) -> Any:
    """An MCP server (`mcp.server.mcpserver.MCPServer`) over the workspace.

    Raises:
        UsageError: the package `mcp` is not installed.
    """
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - an extra
        from mcp.types import ToolAnnotations  # noqa: PLC0415
    except ImportError as error:
        raise needs_extra("the MCP server needs the package mcp", "agents") from error
    made = MCPServer("traceanalyzer", version=__version__, instructions=INSTRUCTIONS)
    hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    for name in VERBS:
        # As text alone: with the same content beside it, indented, an answer would be twice as long.
        tool = made.tool(
            name=name.replace("-", "_"), description=QUESTIONS[name].what, annotations=hints, structured_output=False
        )
        tool(_tool(workspace, name))
    return made


def _tool(workspace: Workspace, verb: str) -> Callable[..., str]:
    """The question as a function of what a caller may give: the server reads its signature."""

    def tool(**given: Any) -> str:
        try:
            return ask(workspace, verb, **given).text()
        except TraceAnalyzerError as error:
            return could_not(str(error), USAGE_ERROR).text()

    question, kinds = QUESTIONS[verb], get_type_hints(Asked)
    defaults = {one.name: one.default for one in fields(Asked)} | dict.fromkeys(
        question.arguments.split(), Parameter.empty
    )
    names = (*question.arguments.split(), *question.selectors.split(), "cursor")
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kinds[name]) for name in names
    ]
    tool.__signature__ = Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    tool.__annotations__ = {name: kinds[name] for name in names} | {"return": str}
    tool.__name__ = verb.replace("-", "_")
    return tool
