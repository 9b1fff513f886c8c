"""What each rank's communication moves in a step, by collective and group: to say which transfer takes longer."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.slower_calls import is_own
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.listed import listed
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model.tables import without_rows

COLLECTIVE = "collective"

TRANSFER = "transfer_ns"

_AMONG = " among ranks "

WITH_ALL = " with every partner"
"""Of ranks whose links are slow, those of one rank or host."""

WITH_MOST = " with most partners"
"""The same, where some of them are in time."""


def transfers(slower: pd.DataFrame) -> pd.DataFrame:
    """Rows as `what_ran` has them, of part `transfer_ns`: by collective and group what its calls take longer.

    Where a rank's links are slow, those of its groups together, and of no other rank.
    """
    if slower.empty:
        return without_rows(["rank", "step", "part", "what", "name", "total_ns"])
    slower = slower.assign(name=_names(slower))[is_own(slower)]
    once = slower.sort_values("longer_ns", ascending=False, kind="stable").drop_duplicates(["rank", "call"])
    step = once["step"].astype("Int64").fillna(-1).astype("int64")
    sums = once["longer_ns"].groupby([once["rank"], step, once["name"]])
    return sums.sum().rename("total_ns").reset_index().assign(part=TRANSFER, what=COLLECTIVE)


def groups_of_slow_links(slower: pd.DataFrame) -> Mapping[frozenset[int], tuple[frozenset[int], ...]]:
    """By the ranks whose links are slow the ranks of each group that they move data with."""
    pairs = slower[["whose", "among"]].dropna().drop_duplicates().groupby("whose")["among"]
    return {frozenset(numbers(whose)): tuple(frozenset(numbers(text)) for text in sorted(own)) for whose, own in pairs}


def _names(slower: pd.DataFrame) -> list[str]:
    """`all-gather among ranks 4 to 7`; `messages among ranks 1 and 2`: one's send is the other's receive.

    Of ranks whose links are slow `messages with every partner`, or with most.
    """
    of_all = np.where(is_true(slower["is_most"]), WITH_MOST, WITH_ALL)
    among = slower["among"].astype("str").where(slower["whose"].isna(), of_all)
    pairs = list(zip(slower["collective"].astype("str"), among, strict=True))
    known = {pair: _name(*pair) for pair in set(pairs)}
    return [known[pair] for pair in pairs]


def _name(collective: str, among: str) -> str:
    what = MESSAGES if collective in POINT_TO_POINT else collective_words(collective)
    return f"{what}{among}" if among in (WITH_ALL, WITH_MOST) else f"{what}{_AMONG}{listed(numbers(among))}"


def collective_of(name: str) -> str:
    """The name without its group."""
    return name.partition(_AMONG)[0].removesuffix(WITH_ALL).removesuffix(WITH_MOST)
