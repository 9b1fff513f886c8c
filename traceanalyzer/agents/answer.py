"""What an answer is, and how a long one is given in pieces."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from traceanalyzer.errors import UsageError

OK, NOTHING_FOUND, COULD_NOT_LOOK = "ok", "nothing_found", "could_not_look"

MOST_CHARACTERS = 20_000
"""Of an answer as JSON: fewer than 8,000 tokens, also where it is all figures and punctuation (2.5 characters each)."""

_FOR_THE_FRAME = 500
"""Kept free for what stands around the rows."""

_LONGEST_TEXT = 2_000
"""A longer text is cut: a file's content must not fill an answer."""

_SENTENCES = 4_000
"""Characters of what is said, and as many of notes: those that follow are counted."""

_COLUMNS = 4_000
"""Characters of definitions; where they do not fit, columns are named without."""


@dataclass(frozen=True, slots=True)
class Answer:
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

    status: str = OK
    said: tuple[str, ...] = ()
    why: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[Mapping[str, Any], ...] = ()
    total_rows: int = 0
    cursor: int | None = None
    notes: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON has it; what is empty is left out."""
        made = {
            "status": self.status,
            "said": list(self.said),
            "why": self.why,
            "columns": dict(self.columns),
            "rows": [dict(row) for row in self.rows],
            "total_rows": self.total_rows if self.rows else None,
            "cursor": self.cursor,
            "notes": list(self.notes),
        }
        return {key: value for key, value in made.items() if value not in (None, [], {})}

    def text(self) -> str:
        """The answer as JSON."""
        return json.dumps(self.plain(), ensure_ascii=False)


def of_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    cursor: int = 0,
    top: int | None = None,
    said: Sequence[str] = (),
    notes: Sequence[str] = (),
    none: str = "no row matches",
) -> Answer:
    """Rows from `cursor` on, as many as fit (and no more than `top`); `none` is why there may be none."""
    if not rows:
        return Answer(NOTHING_FOUND, _fitting(said), str(_short(none)), notes=_fitting(notes))
    if cursor < 0 or (top is not None and top < 1):
        raise UsageError("cursor is that of the answer before, or 0; top is 1 or more")
    if cursor >= len(rows):
        raise UsageError(f"cursor {cursor:,} is beyond the last of {len(rows):,} rows")
    said, notes = _fitting(said), _fitting(notes)
    shown = rows[cursor : None if top is None else cursor + top]
    held = dict.fromkeys(name for row in shown[:1] for name in row)
    told = {name: columns[name] for name in held if name in columns}
    told = told if _length(told) <= _COLUMNS else dict.fromkeys(told, "see `tables`, or docs/metrics.md")
    room = MOST_CHARACTERS - _FOR_THE_FRAME - _length([*said, *notes]) - _length(told)
    kept: list[Mapping[str, Any]] = []
    for row in shown:
        cut = {key: _short(value) for key, value in row.items()}
        if _length(cut) > room and not kept:
            cut = _squeezed(cut, room)
        room -= _length(cut) + 2
        if room < 0:
            break
        kept.append(cut)
    end = cursor + len(kept)
    return Answer(
        said=said,
        columns=told if kept else {},
        rows=tuple(kept),
        total_rows=len(rows),
        cursor=end if kept and end < len(rows) else None,
        notes=notes,
    )


def could_not(why: str) -> Answer:
    """Nothing could be looked at."""
    return Answer(COULD_NOT_LOOK, why=str(_short(why)))


def _fitting(sentences: Sequence[str]) -> tuple[str, ...]:
    """The first sentences, as many as have room, and how many more there are."""
    kept, room = list[str](), _SENTENCES
    for sentence in sentences:
        text = str(_short(sentence))
        room -= _length(text) + 2
        if room < 0:
            return (*kept, f"and {len(sentences) - len(kept)} more, which the report has")
        kept.append(text)
    return tuple(kept)


def _short(value: Any, longest: int = _LONGEST_TEXT) -> Any:
    """The value with texts cut, also those inside lists and rows."""
    if isinstance(value, str):
        return value if len(value) <= longest else value[:longest] + "…"
    if isinstance(value, Mapping):
        return {key: _short(one, longest) for key, one in value.items()}
    return [_short(one, longest) for one in value] if isinstance(value, list | tuple) else value


def _squeezed(row: dict[str, Any], room: int) -> dict[str, Any]:
    """A row that alone is too long: its texts are cut further, and lists are left out when that is not enough."""
    for longest in (500, 100, 20):
        made = {key: _short(value, longest) for key, value in row.items()}
        if _length(made) <= room:
            return made
    return {key: value for key, value in made.items() if not isinstance(value, list | dict)}


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))
