"""What is said of copies of ranks that compute nothing: there is nothing that could hide them."""

from collections.abc import Iterable
from dataclasses import replace

from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.finding import Finding


def compute(headline: Headline, ranks: Iterable[int]) -> bool:
    """Whether any of the ranks computes."""
    table = headline.to_frame()
    return bool((table.loc[table["rank"].isin(list(ranks)), "compute_pct"] > 0).any())


def alone(found: Finding) -> Finding:
    """The finding without a gain: by how much better copies shorten such ranks is not known."""
    return replace(
        found,
        title=f"{found.title} Nothing computes there that could hide them: what they can gain cannot be told.",
        caveat=None,
        gain_ns=None,
        gain_error_ns=None,
        unprofiled_gain_ns=None,
    )
