"""A finding: a fact about the run, the change that fixes it, and what that change saves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, overload

from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.findings.savings import Question, Saves, command_of
from traceanalyzer.meaning.vocabulary import INFO, Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a reader should change or know.

    A kind's function yields it with what it detected; `conclude.find` adds the kind, the saving and the severity.

    Attributes:
        headline: the bottleneck in at most twelve words and two numbers, without a saving.
        why: one sentence of evidence.
        fix: what to change, by API and place; empty for a fact.
        changes: the edits of the job's graph that stand for the fix, made together; none for a fact.
        ranks: stragglers: the ranks that others wait for; none where no rank is at fault.
        named: other ranks that the words single out.
        steps: in which steps it happens; `None` for all.
        cause: of stragglers the part of their time that is longer: compute, copies, host, data, …
        evidence: rows behind it.
        table: the Result in which a reader sees more.
        interval_ns: where in the timeline to look.
        stated_ns: the time of a step that the headline gives, where the change may save more than it.
        half_of: nothing makes all of this time go away: the saving supposes half of it; empty where all of it may.
        is_about_capture: what the capture lacks, rather than what the job does.
        caveat: when it may not hold.
        kind: name of the kind's function.
        sources: names of the Results that the kind read.
        severity: by the lower end of the saving; `info` for a fact. Kinds about the capture set it themselves.
        saves: what the changes save of a step without the profiler; `None` for a fact.
        also: findings with the same cause, seen from elsewhere.
    """

    headline: str
    why: str = ""
    fix: str = ""
    changes: tuple[Change, ...] = ()
    ranks: tuple[int, ...] = ()
    named: tuple[int, ...] = ()
    steps: tuple[int, ...] | None = None
    cause: str | None = None
    evidence: tuple[Mapping[str, Any], ...] = ()
    table: str | None = None
    interval_ns: tuple[int, int] | None = None
    stated_ns: float | None = None
    half_of: str = ""
    is_about_capture: bool = False
    caveat: str = ""
    kind: str = ""
    sources: tuple[str, ...] = ()
    severity: Severity = INFO
    saves: Saves | None = None
    also: "tuple[Finding, ...]" = ()

    @property
    def what_if(self) -> str | None:
        """The command that replays what the saving supposes."""
        supposed = Question(self.changes, self.half_of).least
        return command_of(map(str, supposed)) if supposed else None

    @property
    def leads(self) -> bool:
        """Whether it saves something for sure, and so has a card."""
        return self.severity != INFO and not self.is_about_capture

    @property
    def is_nothing(self) -> bool:
        """Whether its change was replayed and saves nothing."""
        return self.saves is not None and self.saves.is_nothing and not self.is_about_capture

    @property
    def text(self) -> str:
        """Headline, why and fix as sentences."""
        return " ".join(filter(None, (self.headline, self.why, self.fix)))

    def __repr__(self) -> str:
        saves = f", saves {self.saves.words}" if self.saves and self.leads else ""
        return f"Finding({self.severity}, {self.kind}{saves}: {self.headline})"

    def _repr_html_(self) -> str:
        fields = {"Why": self.why, "Fix": self.fix, "Saves": self.saves.words if self.saves and self.leads else ""}
        lines = "".join(f"<li>{name}: {escape(text)}</li>" for name, text in fields.items() if text)
        signs = "".join(f"<li>{escape(sign.headline)}</li>" for sign in self.also)
        return f"<div><b>{escape(self.severity)}</b>: {escape(self.headline)}<ul>{lines}{signs}</ul></div>"


class Findings(tuple[Finding, ...]):
    """Findings in reading order; prints a line for each."""

    __slots__ = ()

    @overload  # type: ignore[override]
    def __getitem__(self, key: int) -> Finding: ...
    @overload
    def __getitem__(self, key: slice) -> "Findings": ...
    def __getitem__(self, key: int | slice) -> "Finding | Findings":
        """One of them, or several as Findings again."""
        return Findings(tuple(self)[key]) if isinstance(key, slice) else tuple(self)[key]

    def __repr__(self) -> str:
        return "\n".join(f"[{place}] {finding!r}" for place, finding in enumerate(self)) or "No findings."

    def _repr_html_(self) -> str:
        return "".join(finding._repr_html_() for finding in self) or "<p>No findings.</p>"


def named_ranks(findings: Iterable[Finding]) -> list[int]:
    """The ranks that findings and their signs name, in their order."""
    every = (each for finding in findings for each in (finding, *finding.also))
    return list(dict.fromkeys(rank for each in every for rank in (*each.ranks, *each.named)))
