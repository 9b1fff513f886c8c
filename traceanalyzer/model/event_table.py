"""Tables of events while a rank is analysed: eighty analyses ask for the same few columns some five hundred times."""

from dataclasses import replace
from typing import Any

import pandas as pd

from traceanalyzer.model.schema import TABLES
from traceanalyzer.model.trace import RankTrace


class EventTable(pd.DataFrame):
    """A table that makes the Series of a column once: pandas does so each time, in as long as to add the column up.

    It is never changed; what is made of it (a selection, a copy) is a plain table.
    """

    _made: dict[str, Any]
    _internal_names_set = {*pd.DataFrame._internal_names_set, "_made"}  # type: ignore[attr-defined]  # noqa: SLF001, RUF012 - how pandas has attributes added

    def __getitem__(self, key: Any) -> Any:
        """As of any table."""
        if type(key) is not str:
            return super().__getitem__(key)
        if key not in self._made:
            self._made[key] = super().__getitem__(key)
        return self._made[key]

    @classmethod
    def of(cls, table: pd.DataFrame) -> "EventTable":
        """The same rows."""
        made = cls(table, copy=False)
        made._made = {}
        return made


def with_event_tables(trace: RankTrace) -> RankTrace:
    """The same rank, for analyses that do not change it."""
    tables: dict[str, Any] = {name: EventTable.of(trace.table(name)) for name in (*TABLES, "steps")}
    return replace(trace, **tables)
