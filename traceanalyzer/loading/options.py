"""What of a run is read."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from traceanalyzer.errors import UsageError
from traceanalyzer.kinds import KindRules
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


_MOST_RANKS = 1_000_000


def parse_ranks(text: str | None) -> frozenset[int] | None:
    """`0,2-3` as a set.

    Raises:
        UsageError: the text is something else.
    """
    if text is None:
        return None
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match:
            raise UsageError(f"--ranks {text!r}: write numbers and ranges such as 0,2-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise UsageError(f"--ranks {text!r}: {first}-{last} is reversed; write {last}-{first}")
        if last >= _MOST_RANKS:
            raise UsageError(f"--ranks {text!r}: ranks go up to {_MOST_RANKS - 1:,}")
        ranks.update(range(first, last + 1))
    return frozenset(ranks)
