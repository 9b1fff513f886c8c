"""What a report holds, how it is made of Results and kept for the next time, and how much of everything is shown."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from traceanalyzer import __version__
from traceanalyzer.analyses import ANALYSES, Results
from traceanalyzer.analyses.base import Result
from traceanalyzer.discovery import Found
from traceanalyzer.discovery.clustering import Run
from traceanalyzer.errors import Failure, sentences, warn
from traceanalyzer.findings import Finding, find
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.loading import LoadOptions, kept_ranks, store
from traceanalyzer.loading.store import read_tables, write_tables
from traceanalyzer.model import Skipped
from traceanalyzer.scale import Summary

FORMAT_VERSION = 3
"""Of `summary.json`; rises when a reader of it must change. One that names tables in files beside it is of the next."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that a writer sees.

    Attributes:
        label: name of the run.
        results: by analysis, in the order in which a report shows them.
        skipped: files, ranks and parts that were left out, and why.
        notes: sentences that a reader of the figures must know.
        remarks: sentences on what was read, which take nothing from the figures.
        run_info: the run.json beside the traces.
        command: the command line that makes this report again.
        created: when it was made, ISO 8601.
        version: of traceanalyzer.
        failures: what could not be computed; its Results are empty.
        snapshots: what memory snapshots beside the traces tell, the gravest first; `memory.html` has more.
    """

    label: str
    results: Results
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    run_info: RunInfo | None = None
    command: str | None = None
    created: str | None = None
    version: str | None = None
    failures: tuple[Failure, ...] = ()
    snapshots: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Report({self.label!r}, {len(self.results)} results, {len(self.findings)} findings)"


def build(
    summary: Summary,
    label: str,
    notes: tuple[str, ...] = (),
    remarks: tuple[str, ...] = (),
    command: str | None = None,
    run_info: RunInfo | None = None,
    findings: tuple[Finding, ...] | None = None,
) -> Report:
    """The report of one run.

    Args:
        summary: its Results, and what was left out.
        label: its name.
        notes: what else limits the figures.
        remarks: which files were chosen, and what was read beside them.
        command: the command line that makes it again.
        run_info: the run.json beside the traces.
        findings: where they are known already.
    """
    failures = list(summary.failures)
    if findings is None:
        findings = find(summary.results, failures)
    warn(failures[len(summary.failures) :])
    return Report(
        label=label,
        results=summary.results,
        findings=findings,
        skipped=summary.skipped,
        notes=(*sentences(failures), *notes, *summary.notes),
        remarks=remarks,
        run_info=run_info,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        failures=tuple(failures),
    )


def with_results(report: Report, results: Results, failures: Sequence[Failure]) -> Report:
    """The report with these in place of the Results of analyses that it has, and with all that failed by now."""
    others = {name: result for name, result in report.results.items() if name not in results}
    notes = report.notes[len(sentences(report.failures)) :]
    return replace(report, results=results | others, notes=(*sentences(failures), *notes), failures=tuple(failures))


# A run's Results and findings, kept in the cache beside its ranks: the same run again begins where it is shown.
#
# An entry is of all files of the run as they were, of what was asked of them, and of all code of the package; only a
# run of which every file is kept has one. It holds tables as Arrow and the rest as JSON, nothing that runs when read.


_KEPT_FORMAT = 7

KEPT_ENDING = "-report"
"""Of an entry's name, which else is that of its files' ranks together."""

Answer = tuple[Summary, tuple[Finding, ...]]


@dataclass(frozen=True, slots=True)
class _KeptFacts:
    """What is no table, and how many tables there are; a claim is a file, its own rank, and that of the run."""

    tables: int
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    claims: tuple[tuple[str, int, int], ...]


def kept_place(found: Found, run: Run, options: LoadOptions, thresholds: Mapping[str, Any]) -> Path | None:
    """Where the run is kept or would be; `None` where one of its files is not kept."""
    places = [kept_ranks.place_of(capture, options, tuple(ANALYSES), thresholds) for capture in run.captures]
    if options.cache is None or None in places:
        return None
    text = repr((_KEPT_FORMAT, [place.name for place in places if place], found.skipped))
    return options.cache / f"{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()}{KEPT_ENDING}"


def kept_run(place: Path | None) -> Answer | None:
    """The run's Results, without the job's graph, and findings from an entry; `None` where none can be read."""

    def read(ranks: list[Path]) -> Answer:
        (own,) = ranks
        facts = msgspec.json.decode((own / "facts.json").read_bytes(), type=_KeptFacts)
        stored = read_tables(own / "tables.columns", facts.tables)
        results: Any = {
            name: ANALYSES[name].result(table, **msgspec.json.decode(facts_json)) for name, table, facts_json in stored
        }
        claims = {(Path(path), own): rank for path, own, rank in facts.claims}
        return Summary(results, facts.skipped, facts.notes, claims), facts.findings

    return store.kept(place, read)


def keep_run(place: Path | None, again: Path | None, summary: Summary, findings: tuple[Finding, ...]) -> None:
    """Keep the run at `place`, unless it is another by now (`again` is its place at this moment) or lacks a part."""
    if not summary.failures:
        store.keep(place, again, [partial(_write_kept, summary=summary, findings=findings)])


def _write_kept(place: Path, summary: Summary, findings: tuple[Finding, ...]) -> None:
    stored = [(name, result.table, _facts_json(result)) for name, result in summary.results.items()]
    written = write_tables(place / "tables.columns", stored)
    claims = tuple((str(path), own, rank) for (path, own), rank in summary.claims.items())
    facts = _KeptFacts(written, findings, summary.skipped, summary.notes, claims)
    text = msgspec.json.encode(facts)
    if msgspec.json.decode(text, type=_KeptFacts) != facts:
        raise ValueError("findings that would come back as others")
    (place / "facts.json").write_bytes(text)


def _facts_json(result: Result) -> str:
    """What a Result says besides its table and its graph."""
    own = [field.name for field in fields(result) if field.init and field.name not in ("table", "engine")]
    return msgspec.json.encode({name: getattr(result, name) for name in own}).decode()


# How much of everything pages, comments and the terminal show, and how large pictures are, in one table.


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows, ranks and characters that are shown; the files beside a page have all. Widths are in pixels."""

    scatter_points: int = 6_000
    """Of calls every n-th is drawn, of operators those with most GPU time."""
    icicle_leaves: int = 1_600
    """Kernels at their places, of all ranks together; a rank's rest is one block."""
    step_chart_cells: int = 4_000
    """Ranks × steps carried one by one; of more only the ranks on top, beside the mean."""
    step_chart_episodes: int = 4
    """Stragglers marked below the steps."""
    listed: int = 8
    """Files, ranks, findings and names that a short list has."""
    named: int = 3
    """Cards on the first screen, and what a sentence names of many."""
    many_ranks: int = 32
    """From here on a heat map, and bars only of outliers and the median rank."""
    outlier_bars: int = 12
    heat_levels: int = 20
    schedule_blocks: int = 4_000
    """A pipeline with more is left to its table."""
    square_cells: int = 64
    """Rows, and columns, of who sends to whom."""
    gaps: int = 20
    what_if_characters: int = 200
    """Of a command on the terminal; a longer one is on the page and in summary.json."""
    plain_rows: int = 16
    """Rows after them are deflated, and unpacked when the table is opened."""
    table_rows: int = 5_000
    """Of one table; the CSV has all."""
    table_columns: int = 12
    """Of more, secondary columns and those of zeros are shown at a click."""
    cell_text: int = 400
    """Characters; the full text is there on hover."""
    side_by_side_ranks: int = 8
    """Of more there is the mean over ranks alone."""
    change_pct: float = 10_000.0
    """More is no share of anything: the base has next to none of it."""
    joined_rows: int = 400
    """Of one joined table."""
    markdown_rows: int = 12
    """Of a table, or of what a gate names."""
    markdown_characters: int = 60_000
    """A comment on a pull request holds 65,536."""
    memory_changes: int = 10
    """Lines of each rank whose peak of memory changed."""
    printed_text: int = 60
    """Characters of a cell on the terminal."""
    notebook_height: int = 800
    difference_characters: int = 32
    """Of what tells names of one short name apart."""
    runs_beside: int = 4
    """More runs are a row each in the terminal."""
    expanded_ranks: int = 4
    """From here on ranks begin collapsed, but for those on top."""
    ungrouped_ranks: int = 16
    """Above this ranks lie in groups."""
    node_ranks: int = 8
    """Neighbors taken for a node where no hostname is recorded."""
    cpu_events: int = 64_000
    """The longest of all ranks; about 4 bytes each."""
    path_stretches: int = 40_000
    """Of more the shortest are drawn as part of the one before."""
    operator_text: int = 240
    """Characters of an operator with its shapes."""
    picture_width: int = 1_200
    flame_row: int = 18
    flame_box: float = 2.0
    """Narrower boxes are left out."""
    flame_depth: int = 60
    memory_sites: int = 40
    memory_ranks: int = 64
    """Ranks with a part of the page, of some 60 kB; the table has all."""
    memory_points: int = 1_200
    """Places across; of the events in each the most is drawn."""
    memory_height: int = 180
    printed_snapshots: int = 16
    printed_sentences: int = 14
    hang_rows: int = 40
    """Of one group; further patterns are counted below."""
    hang_columns: int = 24


LAYOUT = Layout()
