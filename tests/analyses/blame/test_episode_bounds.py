"""What an episode may gain at most and costs at least, from excesses and waits that are written out; in ms."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.episode_bounds import at_least_its_gain, bounds

MS = 1_000_000

EXCESS = {0: (0, 10, 30), 1: (0, 25, 30), 2: (-5, -9, 99)}
"""By step what three ranks need more; of the last step no capture is complete."""


def late(excess=EXCESS, waits=0):
    """`waits` are those of each rank, in every step."""
    rows = [(rank, step, own * MS) for step, ranks in excess.items() for rank, own in enumerate(ranks)]
    table = pd.DataFrame(rows, columns=["rank", "step", "excess_ns"])
    own = table["rank"].map(dict(enumerate(waits))) if waits else 0
    return table.assign(exposed_wait_ns=own * MS, exposed_unmatched_ns=0)


def cells(each, part="compute_ns", name="gemm"):
    """Of (rank, step) what it is longer."""
    rows = [(rank, step, part, name, own * MS) for (rank, step), own in each.items()]
    return pd.DataFrame(rows, columns=["rank", "step", "part", "name", "excess_ns"])


def bound_ms(each, complete=(0, 1), name="gemm", **more):
    """Of the episode of these cells; others are of another cause, name, rank or step."""
    others = [
        cells({(2, 0): 8}, part="host_ns", name=name),
        cells({(2, 0): 7}, name="relu"),
        cells({(2, 0): 6}, name=None if name else "gemm"),
        cells({cell: 9 for cell in ((1, 0), (2, 0), (2, 1)) if cell not in each}, name=name),
    ]
    numbers = tuple(sorted({step for _, step in each if step >= 0}))
    row = {"part": "compute_ns", "name": name, "ranks": tuple({rank for rank, _ in each}), "numbers": numbers}
    found = pd.concat([cells(each, name=name), *others], ignore_index=True)
    (found_ns,) = bounds(pd.DataFrame([row]), found, late(**more), list(complete))
    return None if pd.isna(found_ns) else found_ns / MS


RANK_2 = {(2, 0): 30, (2, 1): 30, (2, 2): 99}


@pytest.mark.parametrize(
    ("each", "more", "expected"),
    [
        (RANK_2, {}, (20 + 5) / 2),  # then rank 1 is the longest
        ({(2, 0): 30}, {}, 20 / 2),
        ({(2, 0): 12}, {}, 12 / 2),  # a part of what it needs more
        ({(1, 0): 10, (2, 0): 30}, {}, 30 / 2),
        ({(2, 2): 99}, {}, None),
        (RANK_2, {"name": None}, (20 + 5) / 2),
        ({(2, -1): 30}, {"complete": (), "excess": {-1: (0, 10, 30)}}, 20),  # of a capture without steps
        (RANK_2, {"complete": ()}, 20 + 5 + 99),  # nobody needs less than nothing more
        (RANK_2, {"waits": (4, 6, 9)}, (24 + 9) / 2),  # all wait for as long as the least does: for others too
        (RANK_2, {"waits": (40, 60, 90)}, (30 + 30) / 2),  # no more than it is longer
    ],
)
def test_it_gains_at_most_what_the_longest_step_is_shorter_without_it(each, more, expected):
    assert bound_ms(each, **more) == expected


@pytest.mark.parametrize(
    ("row", "complete", "raised"),
    [
        ({}, (0, 1), {"excess_ns": 35, "cost_ns": 35}),  # 20 of a mean step, all of it in one: 40, but they wait for 35
        ({"numbers": (0, 1)}, (0, 1), {"excess_ns": 20, "cost_ns": 20}),
        ({"excess_ns": 50 * MS}, (0, 1), {"excess_ns": 50, "cost_ns": 35}),
        ({"gain_is_bound": True}, (0, 1), {"excess_ns": 10, "cost_ns": 12}),
        ({"gain_ns": pd.NA}, (0, 1), {"excess_ns": 10, "cost_ns": 12}),
        ({"numbers": (2,)}, (0, 1), {"excess_ns": 10, "cost_ns": 12}),
        ({}, (), {"excess_ns": 10, "cost_ns": 12}),
    ],
)
def test_it_is_no_less_than_it_gains_as_far_as_others_wait(row, complete, raised):
    own = {
        "ranks": (2,),
        "numbers": (0,),
        "gain_ns": 20 * MS,
        "gain_is_bound": False,
        "excess_ns": 10 * MS,
        "cost_ns": 12 * MS,
    }
    found = at_least_its_gain(pd.DataFrame([own | row]), late(waits=(35, 25, 90)), list(complete))
    assert (found[["excess_ns", "cost_ns"]].iloc[0] / MS).to_dict() == raised
