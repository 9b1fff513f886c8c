"""Which ranks of a run a gate does not see, so that one who is over the limit may be among them."""

from collections.abc import Collection, Sequence
from itertools import islice

import pandas as pd

from traceanalyzer.analyses.integrity.untrue import told
from traceanalyzer.model import Skipped

_MOST_NAMED = 8


def lack_of_ranks(
    ranks: pd.DataFrame,
    wanted: Collection[int] | None,
    skipped: Sequence[Skipped],
    integrity: pd.DataFrame | None = None,
) -> str | None:
    """Why the gates do not see the whole run; `None` when they do.

    Ranks are missing by the world size that the traces state, or of those that the user asked for: ranks that
    nobody asked for are no lack. Where no trace states a world size, a skipped file may have been a rank. Of a rank
    whose file is cut off, what came after the cut is not seen.

    Args:
        ranks: the table of that name.
        wanted: ranks that the user asked for; `None` is all.
        skipped: files and ranks that were left out.
        integrity: the table of that name: of a rank whose times cannot be true nothing is seen.
    """
    sizes = ranks["world_size"].dropna()
    here = set(ranks["rank"])
    expected = sorted(wanted) if wanted is not None else range(int(sizes.max()) if len(sizes) else 0)
    count = sum(rank not in here for rank in expected)
    left_out = "; ".join(f"{item.what}: {item.why}" for item in islice(skipped, _MOST_NAMED))
    if count:
        named = ", ".join(str(rank) for rank in islice((rank for rank in expected if rank not in here), _MOST_NAMED))
        text = f"{count} of {len(expected)} ranks {'is' if count == 1 else 'are'} not here ({named})"
        return f"{text}; skipped {left_out}" if left_out else text
    if left_out and not expected:
        return f"skipped {left_out}"
    return _cut(ranks) or (None if integrity is None else told(integrity))


def _cut(ranks: pd.DataFrame) -> str | None:
    """Which ranks' files end before their events do."""
    if "truncated" not in ranks:  # of a summary that another version stored
        return None
    cut = ranks.loc[ranks["truncated"].astype("boolean").fillna(value=False), "rank"]
    if cut.empty:
        return None
    named = ", ".join(str(rank) for rank in cut.head(_MOST_NAMED))
    more = " and more" if len(cut) > _MOST_NAMED else ""
    return f"the file of rank {named}{more} is cut off, so that the rest of it is not seen"
