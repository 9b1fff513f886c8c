"""Tables and lines as commands print them."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

Part = str | Text
"""A cell: a text is shown as it is, whatever its characters would mean to rich."""


def table_of(heads: Sequence[Part], rows: Iterable[Sequence[Part]], texts: int = 1, **more: Any) -> Table:
    """A table whose first `texts` columns are texts and the others figures; `more` is what rich's tables take."""
    made = Table(box=box.SIMPLE_HEAD, **more)
    for place, head in enumerate(heads):
        made.add_column(plain(head), justify="left" if place < texts else "right")
    for row in rows:
        made.add_row(*map(plain, row))
    return made


def plain(cell: Part) -> Part:
    """The cell without markup of its own."""
    return escape(cell) if isinstance(cell, str) else cell


def with_unit(label: str, unit: str) -> Text:
    """A heading with its unit in a quieter tone."""
    return Text.assemble(label, " ", (unit, "dim"))


def unwrapped(console: Console) -> "partial[None]":
    """Prints a line: wrapped on a terminal, whole into a pipe."""
    return partial(console.print, highlight=False, soft_wrap=not console.is_terminal)
