"""Calls that move data for longer than the same calls of sister groups, and what each rank's communication moves."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, is_true
from traceanalyzer.analyses.communication.clocks import hosts_of, jobs_of
from traceanalyzer.analyses.communication.collectives import (
    Owner,
    instances_of,
    is_beyond_chance,
    usual_ns,
    whose_links,
)
from traceanalyzer.analyses.communication.waits import Members
from traceanalyzer.analyses.statistics import RATIO
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.columns import Better, Column, declared, numbers
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import listed
from traceanalyzer.model.tables import without_rows

# Calls that move data for longer than the same calls of sister groups: how links of one group are known to be slow.


class SlowerCalls(Result):
    """One row for each call of a group that moves data for 1.2 times as long as its sister groups in that step.

    And for longer than such transfers differ by chance, as far as their spread is known.

    Sister groups run the same collective with as many bytes and ranks on as many hosts.
    """

    title = "Calls that move data for longer than those of sister groups"
    is_detail = True
    keys = ("rank", "call", "instance")
    columns = declared(
        rank="Global rank.",
        call="Position among the rank's communication operations.",
        instance="The same collective on all ranks of its group, or one exchange of two ranks.",
        step="Step that launched it; absent for none.",
        end_ns="End on the GPU.",
        collective="Collective or point-to-point operation.",
        among="Global ranks that it moves data between.",
        whose="The rank, or the ranks of the host, of which all groups that lead to others take longer, with several "
        "partners; absent where that is of none, or may be of several.",
        is_most=Column.flag("Of these ranks most groups take longer, and not all.", is_secondary=True),
        transfer_ns="What it takes once the last rank is there.",
        usual_ns="What such calls of the sister groups take in that step: the usual one of them.",
        longer_ns=Column.time(
            "Its part of what its group's calls of that kind take longer in the step.", better=Better.LESS
        ),
    )


def across(
    _parts: Mapping[int, pd.DataFrame],
    members: Members,
    ranks: Ranks,
    least_times: float = RATIO,
) -> SlowerCalls:
    """Hold each group's mean transfer of a kind in a step against the sister groups'."""
    jobs = jobs_of(members.table, ranks.table["rank"])
    held = instances_of(members.table, ranks.table, jobs)
    if held.empty:
        return SlowerCalls(without_rows(SlowerCalls.columns))
    own_ns, beside_ns = usual_ns(held)
    is_slower = (own_ns >= least_times * beside_ns) & is_beyond_chance(held, own_ns, beside_ns)
    share = np.where(is_slower, 1 - np.divide(beside_ns, own_ns, where=own_ns > 0, out=np.ones_like(own_ns)), 0.0)
    longer = held.assign(
        usual_ns=np.where(is_slower, beside_ns, 0).round().astype(np.int64),
        longer_ns=np.round(held["transfer_ns"] * share).astype(np.int64),
    )
    owners = _owners(held, is_slower, ~np.isnan(beside_ns), hosts_of(ranks.table))
    whose = held["among"].map({text: _text(owner.ranks) for text, owner in owners.items()})
    longer = longer.assign(whose=whose, is_most=held["among"].map({text: own.is_most for text, own in owners.items()}))
    longer = longer.loc[is_slower, ["instance", "among", "whose", "is_most", "usual_ns", "longer_ns"]]
    longer = longer.astype({"is_most": "boolean"})
    table = members.table.merge(longer, on="instance")
    return SlowerCalls(table.sort_values(["rank", "call", "instance"], ignore_index=True)[list(SlowerCalls.columns)])


def is_own(slower: pd.DataFrame) -> np.ndarray:
    """Mask of the rows of ranks whose links are slow, or may be: all ranks of a call of which that is unknown."""
    known = {text: numbers(text) for text in slower["whose"].dropna().unique()}
    pairs = zip(slower["rank"], slower["whose"], strict=True)
    return np.array([rank in known.get(whose, (rank,)) for rank, whose in pairs], dtype=bool)


def _owners(
    held: pd.DataFrame, is_slower: np.ndarray, is_held: np.ndarray, hosts: Mapping[int, str]
) -> dict[str, Owner]:
    """By the text of a group's ranks those whose links are slow; of groups that are held against sister groups.

    Those that are so in most of the steps in which the group's calls take longer, and for several groups.
    """
    known = {text: frozenset(numbers(text)) for text in held["among"].unique()}
    every = {known[text] for text in held.loc[is_held, "among"].unique()}
    slow = held.loc[is_slower & is_held, ["step", "among"]].drop_duplicates()
    in_step = slow.groupby("step")["among"].agg(frozenset)
    owners = {texts: whose_links({known[text] for text in texts}, every, hosts) for texts in {*in_step}}
    found: dict[str, Owner] = {}
    for text, steps in slow.groupby("among")["step"]:
        owner, count = Counter(owners[in_step[step]].get(known[text]) for step in steps).most_common(1)[0]
        if owner is not None and 2 * count > len(steps):
            found[text] = owner
    several = Counter(found.values())
    return {text: owner for text, owner in found.items() if several[owner] > 1}


def _text(ranks: frozenset[int]) -> str:
    return ",".join(map(str, sorted(ranks)))


# What each rank's communication moves in a step, by collective and group: to say which transfer takes longer.


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
