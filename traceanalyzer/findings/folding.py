"""One cause, one finding: what other rules say of it becomes part of the one that tells the cause."""

from collections.abc import Sequence
from dataclasses import replace

from traceanalyzer.findings.finding import Finding


def folded(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with those taken in whose `part_of` is what another one is `about`; the order stays.

    A finding that is itself part of another takes nothing in: its cause is not the last one, so what points at it
    stands alone.
    """
    known = {finding.about for finding in findings if finding.about}
    leads = {item.about: item for item in reversed(findings) if item.about and item.part_of not in known}
    inner = {id(item): leads[item.part_of] for item in findings if item.part_of in leads}
    return [
        replace(lead, also=tuple(item for item in findings if inner.get(id(item)) is lead))
        for lead in findings
        if id(lead) not in inner
    ]
