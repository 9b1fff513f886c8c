"""What a finding is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a reader should know or change.

    Attributes:
        rule: the rule's name.
        severity: `high`, `medium`, `low` or `info`.
        title: one sentence with its numbers.
        evidence: the rows behind it, as `Result.rows()` gives them.
        recommendation: what to do.
        caveat: when it may not hold.
        cost_ns: GPU time a step (or of the capture, without steps) that it costs; orders findings.
        interval_ns: where in the timeline to look.
        sources: names of the Results that it comes from.
    """

    rule: str
    severity: str
    title: str
    evidence: tuple[Mapping[str, Any], ...] = ()
    recommendation: str | None = None
    caveat: str | None = None
    cost_ns: int | None = None
    interval_ns: tuple[int, int] | None = None
    sources: tuple[str, ...] = ()
