"""Which host and rack each rank ran on, as a file of the user says."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from traceanalyzer.errors import InputError
from traceanalyzer.files import bounded
from traceanalyzer.model.schema import printable

_RANKS = re.compile(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*")

_APART = re.compile(r"[;\s]+")
"""What stands between the words of a line without commas."""


class Placed(Struct, frozen=True):
    """A rank's host and rack; `None` where it is not said."""

    host: str | None = None
    rack: str | None = None


def read_hosts(path: Path) -> dict[int, Placed]:
    """Rank → host and rack, from CSV or JSON.

    CSV has rows `rank,host,rack`, the rack optional, with or without a line of headings; a rank may be a range, `0-7`.
    Blanks, tabs or semicolons stand for the commas of lines that have none.
    JSON is a list of hosts in order of rank, a list of objects with `rank`, `host` and `rack`, or an object from rank
    to host or to such an object.

    Raises:
        InputError: the file cannot be read, or says nothing of this kind; the message has the line or entry.
    """
    try:
        text = bounded.content(path).decode("utf-8-sig")
        rows = _of_json(json.loads(text)) if text.lstrip()[:1] in ("{", "[") else _of_csv(text)
        return _placed(rows)
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise InputError(
            f"{path}: no hosts of ranks ({error}); write rows rank,host,rack such as 0-7,b07,r2"
        ) from error


_Row = tuple[str, str | None, str | None]


def _of_csv(text: str) -> Iterator[_Row]:
    names = ["rank", "host", "rack"]
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        cells = [cell.strip() for cell in row]
        if len(cells) == 1:
            cells = _APART.split(cells[0])
        if not any(cells) or cells[0].startswith("#"):
            continue
        if number == 1 and not cells[0][:1].isdigit():
            names = [cell.lower() for cell in cells]
            if not {"rank", "host"} <= set(names):
                raise ValueError(f"headings {', '.join(names)}: rank and host are needed")
            continue
        if len(cells) > len(names) or len(cells) < 2:
            raise ValueError(f"line {number} has {len(cells)} cells")
        known = dict(zip(names, cells, strict=False))
        yield known["rank"], known.get("host") or None, known.get("rack") or None


def _of_json(found: Any) -> Iterator[_Row]:
    if isinstance(found, Mapping):
        pairs: Iterable[tuple[Any, Any]] = found.items()
    elif all(isinstance(entry, Mapping) for entry in found):
        pairs = ((entry.get("rank"), entry) for entry in found)
    else:
        pairs = enumerate(found)
    for rank, entry in pairs:
        own = entry if isinstance(entry, Mapping) else {"host": entry}
        host, rack = own.get("host"), own.get("rack")
        if not isinstance(host, str | None) or not isinstance(rack, str | int | None):
            raise ValueError(f"entry {rank}: host and rack are texts")  # noqa: TRY004 - of the file, not of a caller
        if isinstance(entry, Mapping) and host is None and rack is None:
            raise ValueError(f"entry {rank}: neither host nor rack among {', '.join(map(str, entry)) or 'nothing'}")
        yield str(rank), host or None, None if rack is None else str(rack)


def _placed(rows: Iterable[_Row]) -> dict[int, Placed]:
    made: dict[int, Placed] = {}
    for text, host, rack in rows:
        match = _RANKS.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no rank")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{text!r} ends before it begins")
        for rank in range(first, last + 1):
            if rank in made:
                raise ValueError(f"rank {rank} is there twice")
            made[rank] = Placed(*(printable(name) if name else None for name in (host, rack)))
    if not made:
        raise ValueError("it is empty")
    return made
