"""A run's Results and findings, kept in the cache beside its ranks: the same run again begins where it is shown.

An entry is of all files of the run as they were, of what was asked of them, and of all code of the package; only a run
of which every file is kept has one. It holds tables as Arrow and the rest as JSON, nothing that runs when it is read.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.analyses.base import Result
from traceanalyzer.discovery import Found
from traceanalyzer.discovery.clustering import Run
from traceanalyzer.findings import Finding
from traceanalyzer.loading import LoadOptions, kept_ranks, store
from traceanalyzer.loading.store import read_tables, write_tables
from traceanalyzer.model import Skipped
from traceanalyzer.scale import Summary

FORMAT = 7

ENDING = "-report"
"""Of an entry's name, which else is that of its files' ranks together."""

Answer = tuple[Summary, tuple[Finding, ...]]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is no table, and how many tables there are; a claim is a file, its own rank, and that of the run."""

    tables: int
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    claims: tuple[tuple[str, int, int], ...]


def place_of(found: Found, run: Run, options: LoadOptions, thresholds: Mapping[str, Any]) -> Path | None:
    """Where the run is kept or would be; `None` where one of its files is not kept."""
    places = [kept_ranks.place_of(capture, options, tuple(ANALYSES), thresholds) for capture in run.captures]
    if options.cache is None or None in places:
        return None
    text = repr((FORMAT, [place.name for place in places if place], found.skipped))
    return options.cache / f"{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()}{ENDING}"


def kept(place: Path | None) -> Answer | None:
    """The run's Results, without the job's graph, and findings from an entry; `None` where none can be read."""

    def read(ranks: list[Path]) -> Answer:
        (own,) = ranks
        facts = msgspec.json.decode((own / "facts.json").read_bytes(), type=_Facts)
        stored = read_tables(own / "tables.columns", facts.tables)
        results: Any = {
            name: ANALYSES[name].result(table, **msgspec.json.decode(facts_json)) for name, table, facts_json in stored
        }
        claims = {(Path(path), own): rank for path, own, rank in facts.claims}
        return Summary(results, facts.skipped, facts.notes, claims), facts.findings

    return store.kept(place, read)


def keep(place: Path | None, again: Path | None, summary: Summary, findings: tuple[Finding, ...]) -> None:
    """Keep the run at `place`, unless it is another by now (`again` is its place at this moment) or lacks a part."""
    if not summary.failures:
        store.keep(place, again, [partial(_write, summary=summary, findings=findings)])


def _write(place: Path, summary: Summary, findings: tuple[Finding, ...]) -> None:
    stored = [(name, result.table, _facts_json(result)) for name, result in summary.results.items()]
    written = write_tables(place / "tables.columns", stored)
    claims = tuple((str(path), own, rank) for (path, own), rank in summary.claims.items())
    facts = _Facts(written, findings, summary.skipped, summary.notes, claims)
    text = msgspec.json.encode(facts)
    if msgspec.json.decode(text, type=_Facts) != facts:
        raise ValueError("findings that would come back as others")
    (place / "facts.json").write_bytes(text)


def _facts_json(result: Result) -> str:
    """What a Result says besides its table and its graph."""
    own = [field.name for field in fields(result) if field.init and field.name not in ("table", "engine")]
    return msgspec.json.encode({name: getattr(result, name) for name in own}).decode()
