"""The median of all ranks but one, which is found of all of them at once."""

import numpy as np
import pytest

from traceanalyzer.analyses.replay.peers import Peers


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_a_rank_is_held_against_the_median_of_the_others(ranks):
    table = np.random.default_rng(ranks).integers(0, 5, (200, ranks)).astype(float)  # of few values: many are equal
    peers = object.__new__(Peers)
    peers._known = {}
    for own in range(ranks):
        others = np.delete(np.arange(ranks), own)
        assert (peers._median_without(table, others, own) == np.median(table[:, others], axis=1)).all()
