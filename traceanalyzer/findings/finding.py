"""What a finding is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypedDict

from traceanalyzer.analyses.names import ResultName
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.gains import gain_range_said, gain_said
from traceanalyzer.meaning.quantities import text
from traceanalyzer.meaning.severities import Severity

PAGEABLE = "copies of pageable memory"
"""A cause of which rules of hosts and of copies tell (`Finding.about`)."""


class Gained(TypedDict):
    """What a finding says of its gain."""

    gain_ns: int | None
    gain_error_ns: int | None
    gain_is_bound: bool
    gain_most_ns: int | None
    unprofiled_gain_ns: int | None


def gained(gain: Gain | None, bound_ns: float | None = None) -> Gained:
    """The gain of a replay; where nothing is replayed the most that can be won, where that is known."""
    if gain is None:
        most_ns = None if bound_ns is None else round(bound_ns)
        return Gained(
            gain_ns=most_ns, gain_error_ns=None, gain_is_bound=True, gain_most_ns=None, unprofiled_gain_ns=None
        )
    return Gained(
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        gain_is_bound=gain.is_bound,
        gain_most_ns=gain.most_gain_ns if gain.is_delayed else None,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a reader should know or change.

    Attributes:
        rule: the name of the function that found it; `find` says it.
        severity: one of SEVERITIES.
        title: one sentence with its numbers.
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
    table: ResultName | None = None
    about: str | None = None
    part_of: str | None = None
    is_to_do_first: bool = False
    tells_why: bool = False
    also: "tuple[Finding, ...]" = ()

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
