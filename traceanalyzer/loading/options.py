"""What of a run is read."""

from dataclasses import dataclass, field
from pathlib import Path

from traceanalyzer.kinds import KindRules
from traceanalyzer.meaning.number_lists import chosen
from traceanalyzer.selection import Selection


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What of a run is read, and how names become kinds.

    Attributes:
        ranks: only these; `None` is all.
        selection: steps to look at.
        rules: kinds of names.
        follows_links: read what links in a folder name outside it.
        cache: folder in which large traces that were read are kept for the next time; `None` keeps none.
    """

    ranks: frozenset[int] | None = None
    selection: Selection = field(default_factory=Selection)
    rules: KindRules = field(default_factory=KindRules)
    follows_links: bool = False
    cache: Path | None = field(default=None, repr=False, compare=False)


def parse_ranks(text: str | None) -> frozenset[int] | None:
    """`0,2-3` as a set.

    Raises:
        UsageError: the text is something else.
    """
    return None if text is None else chosen(text, "--ranks")
