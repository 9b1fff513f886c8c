"""What a set of ranks is called."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.places import Places, places_of
from traceanalyzer.analyses.blame.rank_sets import RankSet, set_of


def ranks(hosts, per_host=8, racks=()):
    count = hosts * per_host
    return pd.DataFrame(
        {
            "rank": range(count),
            "host": [f"b{rank // per_host:02}" for rank in range(count)] if hosts > 1 else None,
            "rack": [f"r{rank // per_host // racks[0]}" for rank in range(count)] if racks else None,
            "device": [rank % per_host for rank in range(count)],
        }
    )


EMPTY = pd.DataFrame()
GROUPS = pd.DataFrame({"role": ["tensor parallel"] * 8, "users": [()] * 8,
                       "group_ranks": [",".join(map(str, range(start, start + 4))) for start in range(0, 32, 4)]})  # fmt: skip
STAGES = pd.DataFrame({"rank": range(32), "stage": [rank // 2 % 4 for rank in range(32)]})


@pytest.mark.parametrize(
    ("table", "groups", "pipeline", "late", "kind", "name"),
    [
        (ranks(8), EMPTY, EMPTY, [13], "rank", "host b01"),
        (ranks(1, 8), EMPTY, EMPTY, [5], "rank", None),
        (ranks(8), EMPTY, EMPTY, range(16, 24), "host", "host b02"),
        (ranks(8), EMPTY, EMPTY, [16, 17, 18, 20, 21, 22, 23], "host", "7 of the 8 ranks of host b02"),
        (ranks(8), EMPTY, EMPTY, [16, 17, 18], "ranks", None),  # too few to be the host
        (ranks(2, 2), EMPTY, EMPTY, [2, 3], "host", "host b01, half of the job"),  # a fact, whatever chance says
        (ranks(8), EMPTY, EMPTY, range(16, 40), "hosts", "hosts b02 to b04"),
        (ranks(8), EMPTY, EMPTY, [*range(8), *range(48, 56)], "hosts", "hosts b00 and b06"),
        (ranks(8), EMPTY, EMPTY, range(32), "hosts", "hosts b00 to b03, half of the job"),
        (ranks(8, 8, [4]), EMPTY, EMPTY, range(32), "rack", "rack r0, half of the job"),
        (ranks(16, 8, [4]), EMPTY, EMPTY, range(32, 96), "racks", "racks r1 and r2, half of the job"),
        (ranks(8), EMPTY, EMPTY, range(3, 64, 8), "device", "GPU 3 of every host"),
        (ranks(1, 32), GROUPS, EMPTY, range(8, 12), "group", "one tensor parallel group"),
        (ranks(1, 32), EMPTY, STAGES, [2, 3, 10, 11, 18, 19, 26, 27], "stage", "pipeline stage 1"),
        (ranks(1, 32), EMPTY, EMPTY, range(8, 16), "node", "neighbours, one node"),
        (ranks(1, 32), EMPTY, EMPTY, [8, 9, 10, 20], "ranks", None),
        (ranks(1, 8), EMPTY, EMPTY, [0, 3, 5, 6], "half", "half of the job"),
    ],
)  # fmt: skip
def test_a_set_is_named_where_chance_would_hardly_make_it(table, groups, pipeline, late, kind, name):
    every = table["rank"].tolist()
    assert set_of(late, every, places_of(every, table, groups, pipeline)) == RankSet(kind, name)


@pytest.mark.parametrize(
    ("compared", "looked_at", "world_size", "name"),
    [
        (8, 8, 8, "half of the job"),
        (8, 8, None, "half of the job"),
        (8, 8, 32, "half of the ranks looked at"),  # the others were left out, or have no trace
        (6, 8, 8, None),  # half of those that can be compared, which have no name
    ],
)
def test_half_is_said_of_what_it_is_half_of(compared, looked_at, world_size, name):
    places = Places(pd.DataFrame(columns=[*Places.columns]), looked_at=looked_at, world_size=world_size)
    half = list(range(0, compared, 2))
    assert set_of(half, range(compared), places.places(), places.whole(compared)).name == name


def test_ranks_that_are_left_out_are_no_part_of_a_group():
    here = ranks(1, 32).query("rank % 4 < 3")
    every = here["rank"].tolist()
    assert set_of([8, 9, 10], every, places_of(every, here, GROUPS, EMPTY)).name == "one tensor parallel group"
