"""What an answer is, and how a long one is given in pieces."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OK, NOTHING_FOUND, COULD_NOT_LOOK = "ok", "nothing_found", "could_not_look"

MOST_CHARACTERS = 24_000
"""Of an answer as JSON: fewer than 8,000 tokens, of which figures and names have three characters or more."""

_FOR_THE_FRAME = 2_000
"""Kept free for what stands around the rows."""

_LONGEST_TEXT = 2_000
"""A longer cell is cut: a file's content must not fill an answer."""


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
        return Answer(NOTHING_FOUND, tuple(said), none, notes=tuple(notes))
    cut = [{key: _short(value) for key, value in row.items()} for row in rows]
    room = MOST_CHARACTERS - _FOR_THE_FRAME - _length([*said, *notes]) - _length(columns)
    kept: list[Mapping[str, Any]] = []
    for row in cut[cursor : None if top is None else cursor + top]:
        room -= _length(row)
        if room < 0 and kept:
            break
        kept.append(row)
    end = cursor + len(kept)
    return Answer(
        said=tuple(said),
        columns={name: text for name, text in columns.items() if name in kept[0]} if kept else {},
        rows=tuple(kept),
        total_rows=len(rows),
        cursor=end if kept and end < len(rows) else None,
        notes=tuple(notes),
    )


def could_not(why: str, notes: Sequence[str] = ()) -> Answer:
    """Nothing could be looked at."""
    return Answer(COULD_NOT_LOOK, why=why, notes=tuple(notes))


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + "…"
    return value


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))
