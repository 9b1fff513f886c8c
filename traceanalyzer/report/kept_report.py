"""A run's Results and findings, kept in the cache beside its ranks: the same run again begins where it is shown.

An entry is of all files of the run as they were, of what was asked of them, and of all code of the package; only a run
of which every file is kept has one. It holds tables as Arrow and the rest as JSON, nothing that runs when it is read.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from traceanalyzer.analyses import ANALYSES, Results
from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.analyses.replay.replay import Replay
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


class KeptReplay(Replay):  # noqa: D101 - its docstring says what a row is: that of a Replay
    __doc__ = Replay.__doc__
    # Its graph is joined when it is asked for: what pages draw of it is kept.

    __slots__ = ("_engines", "_joined")
    _engines: list[Engine | None]
    _joined: Callable[[], Engine | None]

    def __init__(self, table: pd.DataFrame, why_not: str, note: str, joined: Callable[[], Engine | None]) -> None:
        for name, value in {
            "table": table,
            "_shown": [],
            "why_not": why_not,
            "note": note,
            "_joined": joined,
            "_engines": [],
        }.items():
            object.__setattr__(self, name, value)

    @property
    def engine(self) -> Engine | None:
        """The graph itself."""
        if not self._engines:
            self._engines.append(self._joined())
        return self._engines[0]

    def let_go(self) -> None:
        """As of any replay, where its graph was asked for."""
        if self._engines:
            super().let_go()


def place_of(found: Found, run: Run, options: LoadOptions, thresholds: Mapping[str, Any]) -> Path | None:
    """Where the run is kept or would be; `None` where one of its files is not kept."""
    places = [kept_ranks.place_of(capture, options, tuple(ANALYSES), thresholds) for capture in run.captures]
    if options.cache is None or None in places:
        return None
    text = repr((FORMAT, [place.name for place in places if place], found.skipped))
    return options.cache / f"{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()}{ENDING}"


def kept(place: Path | None, again: Callable[[], Summary]) -> Answer | None:
    """The run's Results and findings from an entry; `None` where there is none that can be read.

    `again` makes the summary anew, from the ranks that are kept: the graph of the job is not in the entry.
    """

    def read(ranks: list[Path]) -> Answer:
        (own,) = ranks
        facts = msgspec.json.decode((own / "facts.json").read_bytes(), type=_Facts)
        stored = read_tables(own / "tables.columns", facts.tables)
        results = {name: _result(name, table, facts_json, again) for name, table, facts_json in stored}
        claims = {(Path(path), own): rank for path, own, rank in facts.claims}
        return Summary(_typed(results), facts.skipped, facts.notes, claims), facts.findings

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


def _result(name: str, table: pd.DataFrame, facts_json: str, again: Callable[[], Summary]) -> Result:
    type_, facts = ANALYSES[name].result, msgspec.json.decode(facts_json)
    if type_ is Replay:
        has_graph = len(table) > 0
        joined = (lambda: again().results["replay"].engine) if has_graph else _none
        return KeptReplay(table, **facts, joined=joined)
    return type_(table, **facts)


def _none() -> None:
    """There is no graph."""


def _typed(results: dict[str, Result]) -> Results:
    made: Any = results
    typed: Results = made
    return typed
