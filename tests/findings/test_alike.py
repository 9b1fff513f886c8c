"""Who costs alike and unlike the others."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.findings.alike import alike, named


def places(hosts=8, per_host=8):
    rows = [
        (host, "host", f"host b{host:02}", ",".join(str(host * per_host + each) for each in range(per_host)), per_host)
        for host in range(hosts)
    ]
    return Places(pd.DataFrame(rows, columns=list(Places.columns)))


def cost(slow, *, ranks=64, base=10.0, more=5.0, noise=0.2, seed=0):
    values = base + noise * np.random.default_rng(seed).standard_normal(ranks)
    values[list(slow)] += more
    return pd.Series(values, index=range(ranks))


@pytest.mark.parametrize(
    ("slow", "who"),
    [
        ([13], "rank 13 (host b01)"),
        (range(16, 24), "ranks 16 to 23 (host b02)"),
        ([16, 17, 18, 19, 21, 22, 23], "ranks 16 to 19 and 21 to 23 (7 of the 8 ranks of host b02)"),
        (range(16, 32), "ranks 16 to 31 (hosts b02 and b03)"),
        (range(32), "ranks 0 to 31 (hosts b00 to b03, half of the job)"),
        ([3, 40], "ranks 3 and 40"),
    ],
)
def test_those_apart_from_the_rest_are_named_as_a_set(slow, who):
    found = alike(cost(slow), places())
    assert found.who == who
    assert found.others == pytest.approx(10.0, abs=0.2)


@pytest.mark.parametrize("seed", range(20))
def test_noise_names_no_set(seed):
    found = alike(cost([], seed=seed), places())
    assert found.place is None or found.is_one


def test_a_set_whose_ranks_differ_is_one():
    values = cost([]).to_numpy().copy()
    values[16:24] += [4, 6, 5, 7, 4.5, 5.5, 6.5, 8]
    assert alike(pd.Series(values), places()).who == "ranks 16 to 23 (host b02)"


def test_two_ranks_and_one():
    assert alike(pd.Series([1.0, 2.0]), places(1, 2)).ranks == (1,)
    assert alike(pd.Series([1.0], index=[4]), places(1, 8)).who == "rank 4"
    assert alike(pd.Series([2.0, 2.0, 2.0], index=[4, 5, 6]), places(1, 8)).ranks == (4,)


@pytest.mark.parametrize(
    ("ranks", "words"), [(range(64), "all 64 ranks"), ([5], "rank 5 (host b00)"), ([8, 9], "ranks 8 and 9")]
)
def test_ranks_in_words(ranks, words):
    assert named(ranks, range(64), places()) == words
