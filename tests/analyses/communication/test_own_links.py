"""Whose links are slow: of the ranks, or hosts, that all slow groups have in common."""

import pytest

from traceanalyzer.analyses.communication.own_links import Owner, whose_links

LINE = [{0, 1}, {1, 2}, {2, 3}, {3, 4}]
RING_OF_NODES = [{one, (one + 2) % 8} for one in range(8)]
PAIRS_AND_ROWS = [{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2, 4, 6}, {1, 3, 5, 7}]
ONE_HOST = dict.fromkeys(range(8), "a")
NODES = {rank: str(rank // 2) for rank in range(8)}


@pytest.mark.parametrize(
    ("every", "hosts", "slow", "whose"),
    [
        (LINE, ONE_HOST, [{1, 2}, {2, 3}], {2}),
        (LINE, ONE_HOST, [{1, 2}], None),
        (LINE, ONE_HOST, [{0, 1}, {2, 3}], None),
        (LINE, ONE_HOST, [{0, 1}, {1, 2}, {2, 3}], None),
        ([*LINE, {1, 4}], ONE_HOST, [{0, 1}, {1, 2}], None),
        (RING_OF_NODES, NODES, [{0, 2}, {2, 4}], {2}),
        (RING_OF_NODES, NODES, [{0, 2}, {2, 4}, {1, 3}, {3, 5}], {2, 3}),
        ([*RING_OF_NODES, {0, 1}, {2, 3}, {4, 5}, {6, 7}], NODES, [{0, 2}, {2, 4}], {2}),
        ([{one, one + 2} for one in range(6)], NODES, [{4, 6}, {5, 7}], None),
        (PAIRS_AND_ROWS, ONE_HOST, [{4, 5}, {1, 3, 5, 7}], {5}),
    ],
    ids=["both of a rank", "one may be either's", "two that share no rank", "two ranks have all of theirs",
         "another one of its is not", "a card of a node", "all cards of a node", "those within nodes are not",
         "towards one node alone", "groups of other sizes"],
)  # fmt: skip
def test_whose(every, hosts, slow, whose):
    slow = [frozenset(each) for each in slow]
    told = whose_links(slow, [frozenset(each) for each in every], hosts)
    assert told == ({} if whose is None else dict.fromkeys(slow, Owner(frozenset(whose))))


WOVEN = [{one, (one + far) % 8} for one in range(8) for far in (1, 2)]


@pytest.mark.parametrize(
    ("slow", "whose"),
    [
        ([{1, 3}, {2, 3}, {3, 5}], {3}),
        ([{1, 3}, {2, 3}], None),
        ([{1, 3}, {2, 3}, {3, 5}, {2, 4}, {0, 2}], None),
    ],
    ids=["three of four", "half of them", "a link may be either one's"],
)
def test_a_rank_of_which_most_links_are_slow(slow, whose):
    slow = [frozenset(each) for each in slow]
    told = whose_links(slow, [frozenset(each) for each in WOVEN], ONE_HOST)
    assert told == ({} if whose is None else dict.fromkeys(slow, Owner(frozenset(whose), is_most=True)))
