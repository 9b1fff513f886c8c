"""Several findings: as a notebook shows them, and the ranks that they name."""

from collections.abc import Iterable, Iterator
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


def named_ranks(findings: Iterable[Finding]) -> list[int]:
    """The ranks that findings name, in their order: of each those that it blames and names, then those of its signs."""
    said = (each for finding in findings for each in (finding, *finding.also))
    return list(dict.fromkeys(rank for each in said for rank in (*each.ranks, *each.named)))
