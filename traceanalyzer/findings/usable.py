"""What findings may say of a capture that lacks something."""

from collections.abc import Sequence

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.integrity.checks import TRUNCATED
from traceanalyzer.analyses.integrity.integrity import untrue_ranks
from traceanalyzer.findings.finding import Finding


def believable(facts: Sequence[Finding], results: Results) -> list[Finding]:
    """The facts that hold of what was recorded: none about a rank of which nothing is known."""
    spoilt = spoilt_ranks(results["integrity"])
    return [fact for fact in facts if fact.is_about_capture or not spoilt & {*fact.ranks, *fact.named}]


def spoilt_ranks(integrity: Result) -> set[int]:
    """Ranks whose files are cut or hold impossible times: nothing is concluded of them."""
    table = integrity.to_frame()
    return {*untrue_ranks(table), *table.loc[table["check"] == TRUNCATED, "rank"].dropna().astype(int)}
