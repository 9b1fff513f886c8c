"""What transfers take at a rate, as others of their kind, in other steps, or between other ranks; times in ns."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.replay.transfer_lengths import are_small, as_in_other_steps, as_on_peers, at_rate, even

MB = 1_000_000


def job_of(instances):
    """Instances (collective, size, ranks, transfer) and optionally whether all ranks of the group have traces."""
    rows = [
        {"instance": number, "rank": rank, "op": number, "collective": collective, "size_bytes": size, "ns": ns,
         "is_whole": whole[0] if whole else True}
        for number, (collective, size, ranks, ns, *whole) in enumerate(instances) for rank in ranks
    ]  # fmt: skip
    joins = pd.DataFrame(rows).astype({"size_bytes": "Float64"})
    return SimpleNamespace(joins=joins, nodes=dict.fromkeys(sorted(joins["rank"].unique())))


def of_instances(job, values):
    """The values of calls by instance, where its ranks have the same one."""
    by_instance = pd.Series(values).groupby(job.joins["instance"])
    assert by_instance.min().equals(by_instance.max())
    return by_instance.first().tolist()


@pytest.mark.parametrize(
    ("instance", "taken_ns"),
    [
        (("all_reduce", 20 * MB, (0, 1), 9), 1_000_000),
        (("all_reduce", 20 * MB, (0, 1, 2, 3), 9), 1_500_000),
        (("all_gather", 20 * MB, (0, 1, 2, 3), 9), 750_000),
        (("broadcast", 20 * MB, (0, 1, 2, 3), 9), 1_000_000),
        (("send", 20 * MB, (0, 1), 9), 1_000_000),
        (("all_reduce", None, (0, 1), 9), None),
        (("all_reduce", 20 * MB, (0, 1), 9, False), None),  # two of a larger group
    ],
)
def test_at_a_rate_a_transfer_takes_its_size_times_what_the_bus_carries(instance, taken_ns):
    (found,) = of_instances(job := job_of([instance]), at_rate(job, 20.0))
    assert found == taken_ns if taken_ns else found > 1e18


@pytest.mark.parametrize(
    ("collective", "size", "is_small"),
    [("all_reduce", 1 << 20, True), ("all_reduce", (1 << 20) + 1, False), ("all_reduce", None, False),
     ("broadcast", 8, True), ("send", 8, False), ("all_to_all", 8, False)],
)  # fmt: skip
def test_what_buckets_can_hold_is_small(collective, size, is_small):
    assert set(are_small(job_of([(collective, size, (0, 1), 9)]).joins)) == {is_small}


PAIRS = [
    ("all_reduce", MB, (0, 1), 100),
    ("all_reduce", MB, (2, 3), 300),
    ("all_reduce", MB, (4, 5), 500),
    ("all_reduce", 2 * MB, (0, 1), 800),
    ("all_gather", MB, (0, 1), 700),
    ("all_reduce", MB, (0, 1, 2), 900),
    ("all_reduce", None, (0, 1), 40),
    ("all_reduce", None, (2, 3), 80),
]
"""Three of one kind, some alone in theirs, and two of unknown size."""


def test_even_transfers_are_the_median_of_those_of_a_collective_size_and_number_of_ranks():
    job = job_of(PAIRS)
    assert of_instances(job, even(job, job.joins["ns"].to_numpy())) == [300, 300, 300, 800, 700, 900, 60, 60]


def test_what_takes_no_time_stays_so_and_ranks_of_one_transfer_keep_what_they_differ_by():
    job = job_of([("all_reduce", MB, (0, 1), 0), ("all_reduce", MB, (0, 1), 100), ("all_reduce", MB, (0, 1), 300)])
    transfer_ns = job.joins["ns"].to_numpy() + np.array([0, 0, 0, 10, 0, 30])
    assert even(job, transfer_ns).tolist() == [0, 0, 100, 110, 100, 110]


@pytest.mark.parametrize(
    ("chosen", "taken_ns"),
    [
        ({3}, [100, 120, 140, 120, 110, 900]),
        ({0}, [100, 120, 140, 800, 110, 900]),  # it takes no longer than the others
        ({4}, [100, 120, 140, 800, 110, 900]),
        ({5}, [100, 120, 140, 800, 110, 900]),  # no other is between the same ranks
        ({2, 3}, [100, 120, 110, 110, 110, 900]),
    ],
)
def test_a_chosen_transfer_takes_no_longer_than_the_median_of_the_others_between_its_ranks(chosen, taken_ns):
    instances = [("all_reduce", MB, (0, 1), ns) for ns in (100, 120, 140, 800)]
    job = job_of([*instances, ("all_reduce", 2 * MB, (0, 1), 110), ("all_reduce", MB, (2, 3), 900)])
    is_chosen = (job.joins["instance"].isin(chosen) & job.joins["rank"].isin([0, 2])).to_numpy()  # one end is enough
    assert of_instances(job, as_in_other_steps(job, job.joins["ns"].to_numpy(), is_chosen)) == taken_ns


@pytest.mark.parametrize(
    ("of_others", "taken_ns"),
    [
        ([("all_reduce", MB, (2, 3), 300)], 300),
        ([("all_reduce", MB, (2, 3), 300), ("all_reduce", MB, (4, 5), 500)], 300),  # of two the shorter
        ([("all_reduce", MB, (2, 3), 300), ("all_reduce", MB, (2, 3), 340), ("all_reduce", MB, (4, 5), 500)], 320),
        ([("all_reduce", MB, (2, 3), 300), *[("all_reduce", MB, (4, 5), 500)] * 9, ("all_reduce", MB, (6, 7), 700),
          ("all_reduce", MB, (8, 9), 880)], 500),
        ([("all_reduce", MB, (2, 3), 2_000)], 900),  # no longer than it is
        ([("all_gather", MB, (2, 3), 300)], 0),  # nobody else has such a one
        ([("all_reduce", MB, (2, 3, 4), 300)], 0),
        ([("all_reduce", MB, (1, 2), 300)], 300),  # some of it are not changed
    ],
)  # fmt: skip
def test_slow_links_take_the_median_of_other_groups_each_of_which_counts_once(of_others, taken_ns):
    job = job_of([("all_reduce", MB, (0, 1), 900), *of_others])
    before = job.joins["ns"].to_numpy()
    after = of_instances(job, as_on_peers(job, before, frozenset({0, 1})))
    assert after == [taken_ns, *(ns for *_, ns in of_others)]


@pytest.mark.parametrize(
    ("of_others", "taken_ns"),
    [
        ([("all_reduce", 2 * MB, (2, 3), 400)], 400),  # fewer bytes take no longer
        ([("all_reduce", MB / 2, (2, 3), 250)], 500),  # more no longer than at the same rate
        ([("all_reduce", MB / 2, (2, 3), 250), ("all_reduce", 2 * MB, (2, 3), 400)], 400),
        ([("all_reduce", MB / 2, (2, 3), ns) for ns in (200, 250, 900)], 500),
        ([("all_reduce", 2 * MB, (1, 2), 400), ("all_gather", MB, (2, 3), 10)], 400),
    ],
)
def test_where_others_move_other_sizes_they_tell_what_so_many_bytes_take_at_most(of_others, taken_ns):
    job = job_of([("all_reduce", MB, (0, 1), 900), *of_others])
    after = of_instances(job, as_on_peers(job, job.joins["ns"].to_numpy(), frozenset({0, 1})))
    assert after == [taken_ns, *(ns for *_, ns in of_others)]


def test_what_takes_no_time_is_no_longer_on_slow_links():
    job = job_of([("all_reduce", MB, (0, 1), 0), ("all_reduce", MB, (2, 3), 300)])
    assert of_instances(job, as_on_peers(job, job.joins["ns"].to_numpy(), frozenset({0, 1}))) == [0, 300]


def test_of_a_call_of_two_messages_the_other_one_takes_what_its_other_end_shows():
    """Rank 0 exchanges with ranks 1 and 2 in one call of 900 ns; the slow link is that to rank 1."""
    messages = [
        ("send", MB, (0, 1), 900),
        ("send", MB, (0, 2), 900),
        *(("send", MB, pair, 300) for pair in ((3, 4), (5, 6))),
    ]
    job = job_of(messages)
    job.joins["op"] = [0, 0, 0, 1, *[0] * 4]
    transfer_ns = np.array([900, 900, 900, 200, 300, 330, 300, 300])
    assert as_on_peers(job, transfer_ns, frozenset({0, 1})).tolist() == [300, 300, 200, 200, 300, 330, 300, 300]
