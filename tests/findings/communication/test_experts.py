"""Whose experts get more tokens than chance deals out."""

import pandas as pd
import pytest

from traceanalyzer.findings.communication.experts import _is_always_hot

GROUP = {"group": "ep", "group_ranks": "0,1"}


@pytest.mark.parametrize(
    ("of_others", "is_hot"),
    [((46, 34, 46, 34), False), ((40, 40, 40, 41), True)],
    ids=["now one, now the other", "even"],
)
def test_the_same_rank_in_four_steps_of_one_dispatch_may_be_chance(of_others, is_hot):
    """Rank 0 gets most of one dispatch in all steps; the loads of nine others tell how far that goes by chance."""
    loads = {0: (46, 47, 46, 45)} | {place: of_others[place % 4 :] + of_others[: place % 4] for place in range(1, 10)}
    own = pd.DataFrame(
        {"place": [*loads], "direction": "dispatch", "hot_rank": [0, *[1] * 9], "load_max_over_mean": 1.15}
    )
    rows = [
        (place, step, rank, load if not rank else 80 - load)
        for place, each in loads.items() for step, load in enumerate(each) for rank in range(2)
    ]  # fmt: skip
    exchanges = pd.DataFrame(rows, columns=["place", "step", "rank", "load_bytes"]).astype({"step": "Int64"})
    unknown = exchanges.iloc[:2].assign(step=pd.NA, place=77)
    exchanges = pd.concat([exchanges, unknown.astype({"step": "Int64"})], ignore_index=True)
    assert _is_always_hot(own.assign(**GROUP), 0, exchanges.assign(**GROUP)) is is_hot
