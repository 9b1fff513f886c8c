"""Several findings, as a notebook shows them."""

from collections.abc import Iterator
from html import escape
from typing import overload

from traceanalyzer.findings.finding import Finding


class Findings(tuple[Finding, ...]):
    """Findings in their order, most to gain first: a tuple that prints a line for each."""

    __slots__ = ()

    @overload  # type: ignore[override]
    def __getitem__(self, key: int) -> Finding: ...
    @overload
    def __getitem__(self, key: slice) -> "Findings": ...
    def __getitem__(self, key: int | slice) -> "Finding | Findings":
        """One of them, or several as Findings again."""
        return Findings(tuple(self)[key]) if isinstance(key, slice) else tuple(self)[key]

    def __repr__(self) -> str:
        return "\n".join(self._lines()) or "No findings: every rule was asked and none speaks."

    def _lines(self) -> Iterator[str]:
        for place, finding in enumerate(self):
            yield f"[{place}] {finding!r}"

    def _repr_html_(self) -> str:
        if not self:
            return f"<p>{escape(repr(self))}</p>"
        return "".join(finding._repr_html_() for finding in self)
