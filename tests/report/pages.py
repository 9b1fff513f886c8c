"""Reads a report's page back: its tables, texts and scripts."""

import base64
import json
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any


@dataclass
class Table:
    """One table: its name, its columns, and rows of (shown text, full value) by column."""

    name: str
    columns: list[str] = field(default_factory=list)
    rows: list[dict[str, tuple[str, str | None]]] = field(default_factory=list)


class Page(HTMLParser):
    """Collects tables by name, all visible text, elements and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: dict[str, Table] = {}
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._table: Table | None = None
        self._cells: list[tuple[str, str | None]] = []
        self._cell: list[Any] | None = None
        self._raw: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag in ("script", "style"):
            self._raw = tag
            self.scripts += [(attributes, "")] if tag == "script" else []
        if "data-name" in attributes:
            self._table = self.tables.setdefault(attributes["data-name"], Table(attributes["data-name"]))
        if tag == "th" and self._table and "data-column" in attributes:
            self._table.columns.append(attributes["data-column"])
        if tag == "tr":
            self._cells = []
        if tag == "td":
            self._cell = ["", attributes.get("data-v")]

    def handle_endtag(self, tag):
        if tag == "script" and self.scripts[-1][0].get("class") == "rows":
            self._unpack(self.scripts[-1][1])
        if tag in ("script", "style"):
            self._raw = None
        if tag == "td" and self._cell is not None:
            self._cells.append((self._cell[0], self._cell[1]))
            self._cell = None
        if tag == "tr" and self._table and self._cells:
            self._table.rows.append(dict(zip(self._table.columns, self._cells, strict=True)))
        if tag == "section":
            self._table = None

    def _unpack(self, text):
        columns = json.loads(zlib.decompress(base64.b64decode(json.loads(text))))
        for row in zip(*columns, strict=True):
            cells = [tuple(cell) if isinstance(cell, list) else (cell, None) for cell in row]
            self._table.rows.append(dict(zip(self._table.columns, cells, strict=True)))

    def handle_data(self, data):
        if self._raw == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        if self._raw:
            return
        self.text += data
        if self._cell is not None:
            self._cell[0] += data
