"""Several findings: as a notebook shows them, and the ranks that they name."""

import re
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
    """The ranks that findings name, in their order: those that they blame, then all that their words speak of."""
    found: list[int] = []
    for finding in findings:
        words = " ".join([finding.title, *(item.title for item in finding.also)])
        found += [*finding.ranks, *(int(rank) for named in _NAMED.findall(words) for rank in _NUMBER.findall(named))]
    return list(dict.fromkeys(found))


_NAMED = re.compile(r"\brank \d+\b|\branks \d+\b(?:(?:, | and )\d+\b)*(?!,\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
