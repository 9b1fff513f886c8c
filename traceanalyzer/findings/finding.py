"""What a finding is, several of them, their order, and one finding for one cause."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, TypedDict, overload

from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.findings.savings import Saves, command_of
from traceanalyzer.meaning.columns import Unit, text
from traceanalyzer.meaning.vocabulary import INFO, SEVERITIES, Severity, gain_range_said, gain_said

# What a finding is.


PAGEABLE = "copies of pageable memory"
"""A cause of which rules of hosts and of copies tell (`Finding.about`)."""


class Gained(TypedDict):
    """What a finding says of its gain."""

    gain_ns: int | None
    gain_error_ns: int | None
    gain_is_bound: bool
    gain_most_ns: int | None
    unprofiled_gain_ns: int | None
    changes: tuple[str, ...]


def gained(gain: Gain | None, bound_ns: float | None = None) -> Gained:
    """The gain of a replay; where nothing is replayed the most that can be won, where that is known."""
    if gain is None:
        most_ns = None if bound_ns is None else round(bound_ns)
        return Gained(
            gain_ns=most_ns,
            gain_error_ns=None,
            gain_is_bound=True,
            gain_most_ns=None,
            unprofiled_gain_ns=None,
            changes=(),
        )
    return Gained(
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        gain_is_bound=gain.is_bound,
        gain_most_ns=gain.most_gain_ns if gain.is_delayed else None,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
        changes=changed(gain),
    )


def changed(gain: Gain | None) -> tuple[str, ...]:
    """What a replay changed, as a finding holds it."""
    return () if gain is None else tuple(map(str, gain.changes))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a reader should know or change.

    Attributes:
        rule: the name of the function that found it; `find` says it.
        severity: by the lower end of what it saves (`savings.CUTS`); `info` of what is no more than a fact. Of what is
            about the capture, how much of it is in doubt.
        title: sentences with their numbers, the first of them the headline unless `summary` has one.
        summary: the headline, where the first sentence of the title is too long for one.
        reason: why, where the rest of the title does not say it.
        evidence: the rows behind it, as `Result.rows()` gives them.
        recommendation: what to do.
        caveat: when it may not hold.
        gain_ns: what mending it gains of a mean step (of the capture, without steps); orders findings.
        gain_error_ns: how far the gain may be off; `None` where that is not known.
        gain_is_bound: the gain is the most that can be won, not what will be (`meaning.gains.gain_said`).
        gain_most_ns: the gain where start delays that no recorded dependency explains go, too; `None` where these are
            few.
        unprofiled_gain_ns: the gain without what recording takes the hosts, an estimate; where it is known it is what
            findings are ordered by.
        is_of_ideal: it is a distance from what nobody has (hosts that take no time, the GPU's peak): of the same
            severity it comes after causes that can be mended.
        is_of_hosts: it stands on the time of hosts, which are slower under a profiler.
        ranks: those that are late by it, in order; none where the finding holds nobody to be late.
        named: those that its words single out besides, in their order: not where they say all ranks, nor those of a
            pipeline as a whole.
        worst_rank: of several the one that is latest, clearly; `None` where they are alike.
        steps: in which they are; `None` for every step that is looked at.
        is_about_capture: it says what the capture cannot tell: such findings come before advice.
        cause: the part of their time that is longer than their peers': compute, copies, host, data, …; of ranks that
            hide each other those of all of them (`data and compute`).
        interval_ns: where in the timeline to look.
        sources: names of the Results that it comes from.
        table: the Result in which a reader sees more of it.
        about: the cause that it tells of, by which others point at it: `host of rank 0`, `pipeline 0`.
        part_of: the cause behind it: the first finding about that cause takes this one in.
        is_to_do_first: where a distance from an ideal takes it in, its advice comes before that one's.
        tells_why: where it gains most of what the finding that takes it in does, its advice stands for that one's.
        also: findings that it has taken in: the same cause, seen from elsewhere.
        changes: what is different in the replay that stands for the remedy, as `what-if` reads it.
        saves: what these save of a step without the profiler; `None` of a fact.
    """

    rule: str = field(default="", kw_only=True)
    severity: Severity
    title: str
    evidence: tuple[Mapping[str, Any], ...] = ()
    recommendation: str | None = None
    caveat: str | None = None
    gain_ns: int | None = None
    gain_error_ns: int | None = None
    gain_is_bound: bool = True
    gain_most_ns: int | None = None
    unprofiled_gain_ns: int | None = None
    is_of_ideal: bool = False
    is_of_hosts: bool = False
    ranks: tuple[int, ...] = ()
    named: tuple[int, ...] = ()
    worst_rank: int | None = None
    steps: tuple[int, ...] | None = None
    cause: str | None = None
    is_about_capture: bool = False
    interval_ns: tuple[int, int] | None = None
    sources: tuple[str, ...] = ()
    table: str | None = None
    about: str | None = None
    part_of: str | None = None
    is_to_do_first: bool = False
    tells_why: bool = False
    also: "tuple[Finding, ...]" = ()
    summary: str = ""
    reason: str = ""
    changes: tuple[str, ...] = ()
    saves: Saves | None = None

    @property
    def headline(self) -> str:
        """What is slow, in one sentence."""
        return self.summary or sentences(self.title)[0]

    @property
    def why(self) -> str | None:
        """What shows it: the rest of the title, or the title where the headline is another sentence."""
        return self.reason or (None if self.summary else " ".join(sentences(self.title)[1:]) or None)

    @property
    def fix(self) -> str | None:
        """What to change."""
        return self.recommendation

    @property
    def what_if(self) -> str | None:
        """The command that replays its change."""
        return command_of(self.changes) if self.changes else None

    @property
    def leads(self) -> bool:
        """Whether it saves something for sure: it has a card; what does not is a fact, or about the capture."""
        return not self.is_about_capture and self.severity != INFO

    @property
    def is_nothing(self) -> bool:
        """Whether its change was replayed and saves nothing."""
        return self.saves is not None and self.saves.is_nothing and not self.is_about_capture

    @property
    def expected_ns(self) -> int | None:
        """What mending it is expected to gain of a step without the profiler, else of a recorded one."""
        return self.gain_ns if self.unprofiled_gain_ns is None else self.unprofiled_gain_ns

    @property
    def gain_words(self) -> str:
        """The gain and whether it is the most that can be won, as an ideal's is; or between what it lies."""
        if self.gain_ns is not None and self.gain_most_ns is not None:
            return gain_range_said(self.gain_ns, self.gain_most_ns)
        return gain_said(text(self.gain_ns, Unit.NS), is_bound=self.gain_is_bound or self.is_of_ideal)

    def __repr__(self) -> str:
        gain = f", gain {text(self.gain_ns, Unit.NS)}" if self.gain_ns is not None else ""
        return f"Finding({self.severity}, {self.rule}{gain}: {self.title})"

    def _repr_html_(self) -> str:
        gain = f" Gain: {self.gain_words}." if self.gain_ns else ""
        said = [f"<b>{escape(self.severity)}</b>: {escape(self.title)}{gain}"]
        said += [f"<li>{escape(sign.title)}</li>" for sign in self.also]
        said += [f"<p>{escape(self.recommendation)}</p>"] if self.recommendation else []
        said += [f"<p><i>{escape(self.caveat)}</i></p>"] if self.caveat else []
        return f"<div>{''.join(said)}</div>"


_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")
"""Between sentences."""


def sentences(title: str) -> list[str]:
    """The title, a sentence each."""
    return _END.split(title)


# Several findings: as a notebook shows them, and the ranks that they name.


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


# One cause, one finding: what other rules say of it becomes part of the one that tells the cause.


_MOST = 0.8

_HALF = 0.5


def folded(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with those taken in whose `part_of` is what another one is `about`; the order stays.

    Of several about one cause the first leads, and those that are part of that cause too are taken in. A finding
    that is itself part of another takes nothing in: its cause is not the last one, so what points at it stands alone.
    So does what gains over twice as much as the one that would take it in: that is the smaller part of it.
    """
    first = {item.about: item for item in reversed(findings) if item.about}
    outer = {id(item): _outer(item, first) for item in findings}
    inner = {key: lead for key, lead in outer.items() if id(lead) != key and outer[id(lead)] is lead}
    return [
        _with(lead, _signs([item for item in findings if inner.get(id(item)) is lead]))
        for lead in findings
        if id(lead) not in inner
    ]


def _signs(taken_in: Sequence[Finding]) -> tuple[Finding, ...]:
    """What says what to do stands before the others: of many, two are said in the terminal; of the same words one."""
    by_words = {(item.rule, str(item.title)): item for item in reversed(taken_in)}
    once = [item for item in taken_in if by_words[item.rule, str(item.title)] is item]
    return tuple(sorted(once, key=lambda item: not (item.is_to_do_first or item.tells_why)))


def _outer(item: Finding, first: Mapping[str, Finding]) -> Finding:
    lead = first.get(item.part_of or "", item)
    is_known = not (item.gain_is_bound or item.is_of_ideal or lead.gain_is_bound)
    is_more = is_known and (lead.expected_ns or 0) < _HALF * (item.expected_ns or 0)
    return item if is_more else lead


def _with(lead: Finding, also: tuple[Finding, ...]) -> Finding:
    """One card for one cause.

    Of an ideal, what signs say can be mended is to be done first, and that alone where one gains most of it. A sign of
    an ideal that makes half of it leads itself, unless the ideal says in which steps. One that tells why the cause is
    there, and gains most of what mending it does, says what to do.
    """
    concrete = [it for it in also if it.is_to_do_first] if lead.is_of_ideal else []
    leading = concrete if lead.steps is None else []
    main = next((it for it in leading if (it.gain_ns or 0) >= _HALF * (lead.expected_ns or 0) > 0), None)
    first = [it.recommendation for it in concrete if it.recommendation]
    why = next((it for it in also if it.tells_why and (it.gain_ns or 0) >= _MOST * (lead.gain_ns or 0)), lead)
    is_all = main is not None and (main.gain_ns or 0) >= _MOST * (lead.gain_ns or 0)
    advice = " ".join(dict.fromkeys([*first, *([] if is_all else [why.recommendation or ""])])).strip() or None
    if main is not None:
        also = (lead, *(it for it in also if it is not main))
        lead = replace(main, about=lead.about, part_of=None)
    return replace(lead, also=also, recommendation=advice)


# In which order findings are read: what saves most for sure, facts, what is about the capture, what saves nothing.


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings, first to read first.

    By the lower end of what they save, the narrower interval first of the same; a remedy goes before an ideal of which
    it saves half. Then facts without a saving, then what is about the capture, which comes first only where no finding
    leads, and last what saves nothing.
    """
    every = list(findings)
    has_lead = any(item.leads for item in every)
    return sorted(every, key=lambda item: _key(item, has_lead=has_lead))


def _key(finding: Finding, *, has_lead: bool) -> tuple[int, float, float, int]:
    saves = finding.saves
    if finding.is_about_capture:
        is_first = not has_lead and finding.severity != SEVERITIES[-2] and not finding.is_of_hosts
        return (1 if is_first else 3), SEVERITIES.index(finding.severity), 0, 0
    if finding.leads and saves is not None:
        return 0, -saves.low_ns * (_HALF if finding.is_of_ideal else 1), saves.high_ns - saves.low_ns, 0
    return (4 if finding.is_nothing else 2), finding.is_of_ideal, not finding.ranks, -(finding.expected_ns or 0)
