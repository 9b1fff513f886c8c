"""What the analyses made of a file's ranks, kept beside its columns: the same run again begins where ranks are joined.

An entry is of one file as it was, of what was asked of it, and of all code of the package. It holds tables as Arrow and
facts as JSON, nothing that runs when it is read; whatever is wrong with it, the file is read and analysed again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from traceanalyzer.analyses.registry import ANALYSES, SHARED
from traceanalyzer.analyses.replay.graph import Piece
from traceanalyzer.cuda_graphs import captures_beside, notes_beside
from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.kinds import KindRules
from traceanalyzer.loading import LoadOptions, store
from traceanalyzer.loading.store import (
    StoredTable,
    code_of,
    facts_of,
    key_of,
    read_tables,
    write_tables,
)
from traceanalyzer.model import RankMeta
from traceanalyzer.model.tables import columns_of, table_of

WORTH_BYTES = 512 << 10
"""Of smaller files: they are read and analysed within a moment."""

ENDING = "-ranks"
"""Of an entry's name, which else is as that of the file's columns."""

Tables = dict[str, pd.DataFrame]

_PIECE = "replay piece"
_FRAMES = tuple(field.name for field in fields(Piece) if field.name != "why_no_host")


@dataclass(frozen=True, slots=True)
class _Facts:
    """What of a rank is no table, and how many tables there are."""

    meta: RankMeta
    tables: int


def place_of(
    capture: TraceFile, options: LoadOptions, names: tuple[str, ...], thresholds: Mapping[str, Any]
) -> Path | None:
    """Where the ranks of a file are kept or would be, by all that decides what is made of it.

    `None` for what is not worth keeping, or may not be.
    """
    path = capture.path
    # Members of archives and remote files lie in a folder of this process, and no other run finds them there.
    if options.cache is None or capture.place != path:
        return None
    rules = tuple((kind, rule.pattern, rule.flags) for kind, rule in options.rules.extra)
    ranks = None if options.ranks is None else sorted(options.ranks)
    asked = (capture.hint, rules, ranks, options.selection, names, sorted(thresholds.items()))
    others = [*captures_beside(path), *notes_beside(path)]  # graphs take operators and names from them
    beside = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in others]
    key = key_of(path, (_code(), asked, beside), WORTH_BYTES)
    return None if key is None else options.cache / f"{key}{ENDING}"


def kept(place: Path | None, rules: KindRules) -> list[tuple[RankMeta, Tables]]:
    """The ranks of an entry, read under these rules; none where there is none that can be read."""
    found = store.kept(place, lambda ranks: [*map(_read, ranks)]) or []
    return [(replace(meta, kind_rules=rules) if rules.extra else meta, tables) for meta, tables in found]


def keep(place: Path | None, again: Path | None, ranks: Sequence[tuple[RankMeta, Tables]]) -> None:
    """Keep the ranks at `place`, unless the file is another one by now: `again` is its place at this moment."""
    store.keep(place, again, [partial(_write, meta=meta, tables=tables) for meta, tables in ranks])


@cache
def _code() -> str:
    """Names the code: every file of the package, and which functions the registries have."""
    makers = [ANALYSES[name].per_rank for name in ANALYSES] + [*SHARED.values()]
    return code_of(Path(__file__).parents[1].rglob("*.py"), [getattr(make, "__qualname__", "") for make in makers])


def _write(place: Path, meta: RankMeta, tables: Tables) -> None:
    written = write_tables(place / "tables.columns", _flat(tables))
    (place / "rank.json").write_bytes(msgspec.json.encode({"meta": facts_of(meta), "tables": written}))


def _read(place: Path) -> tuple[RankMeta, Tables]:
    facts = msgspec.json.decode((place / "rank.json").read_bytes(), type=_Facts)
    return facts.meta, _whole(read_tables(place / "tables.columns", facts.tables))


def _flat(tables: Tables) -> Iterator[StoredTable]:
    """The tables by name; a rank's piece of the job's graph as the tables that it is of, and why it has no host."""
    for name, frame in tables.items():
        if "piece" in frame:
            piece = frame["piece"].iloc[0]
            if not isinstance(piece, Piece) or len(frame) != 1:
                raise ValueError("not as the analysis gives it")
            yield name, table_of({own: values for own, values in columns_of(frame).items() if own != "piece"}), _PIECE
            for part in _FRAMES:
                yield part, getattr(piece, part), piece.why_no_host
        else:
            yield name, frame, ""


def _whole(found: list[StoredTable]) -> Tables:
    tables: Tables = {}
    left = iter(found)
    for name, frame, facts in left:
        if facts == _PIECE:
            parts = [next(left) for _ in _FRAMES]
            piece = Piece(**{part: own for part, own, _ in parts}, why_no_host=parts[0][2])
            tables[name] = frame.assign(piece=[piece.spilled()])
        else:
            tables[name] = frame
    return tables
