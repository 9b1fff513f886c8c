"""One episode's figures, from cells and steps that are written out."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.episode_rows import is_of_every_host, row_of

MS = 1_000_000

WAITS_MS = {0: (0, 10, 30, 50), 1: (0, 6, 26, 46), 2: (0, 0, 0, 0)}
"""Of three ranks, in four steps; rank 2 is late in the second and third one."""

CALLS = pd.DataFrame(
    [(rank, step, name, ms * MS, 0) for rank, step, name, ms in
     [(0, 1, "all_reduce", 4), (0, 2, "all_reduce", 9), (1, 1, "all_gather", 12), (2, 2, "broadcast", 90), (0, 3, "reduce", 99)]],
    columns=["rank", "step", "collective", "wait_ns", "unmatched_ns"],
)  # fmt: skip


def steps(compute_ms, **more):
    """Steps of 100 ms of three ranks."""
    rows = [
        {"rank": rank, "step": step, "compute_ns": own * MS, "exposed_wait_ns": WAITS_MS[rank][step] * MS}
        for rank, each in compute_ms.items()
        for step, own in enumerate(each)
    ]
    columns = {"peers": "all", "operations": 100, "exposed_unmatched_ns": 0, "exposed_transfer_ns": 0, "transfer_ns": 1,
               "loading_ns": pd.NA, "needed_host_ns": pd.NA, "met_in": None, "met_ns": 0, "begin_ns": 0,
               "end_ns": 100 * MS} | more  # fmt: skip
    table = pd.DataFrame(rows).assign(**columns)
    return table.astype({"loading_ns": "Int64", "needed_host_ns": "Int64"})


def cells(excess_ms, **more):
    """Of rank 2, by step."""
    rows = [{"rank": 2, "step": step, "excess_ns": ms * MS} for step, ms in excess_ms.items()]
    columns = {"part": "compute_ns", "is_in_turn": False, "what": "kernel", "name": "gemm", "same_ns": float("nan"),
               "peers_same_ns": float("nan")} | more  # fmt: skip
    return pd.DataFrame(rows).assign(**columns)


COMPUTE_MS = {0: (50, 50, 50, 50), 1: (52, 52, 52, 52), 2: (50, 61, 81, 97)}


def test_figures_are_means_over_complete_steps_of_medians_over_ranks():
    row = row_of(cells({1: 10, 2: 30, 3: 46}), steps(COMPUTE_MS), CALLS, [0, 1, 2])
    told = {name: row[name] for name in ("ranks", "numbers", "steps", "is_in_every_step", "cause", "what", "name")}
    assert told == {"ranks": (2,), "numbers": (1, 2, 3), "steps": 4, "is_in_every_step": False, "cause": "compute",
                    "what": "kernel", "name": "gemm"}  # fmt: skip
    times = {name: row[name] / MS for name in ("excess_ns", "own_ns", "peers_ns", "cost_ns", "wait_ns", "step_ns")}
    assert times == {"excess_ns": 20, "own_ns": 71, "peers_ns": 51, "cost_ns": 18, "wait_ns": 20, "step_ns": 100}
    assert (row["waiting_ranks"], row["most_waiting_rank"], row["total_ns"]) == (2, 0, 54 * MS)
    assert row["collective"] == "reduce", "of the others, in the episode's steps"


def test_it_costs_no_more_than_it_is_longer():
    assert row_of(cells({1: 5, 2: 7}), steps(COMPUTE_MS), CALLS, [0, 1, 2])["cost_ns"] == 6 * MS


@pytest.mark.parametrize(
    ("excess_ms", "complete", "is_in_every"),
    [
        ({0: 9, 1: 9, 2: 9}, [0, 1, 2], True),  # the last one is open
        ({1: 9, 2: 9}, [0, 1, 2], False),
        ({1: 9}, [1], False),
        ({0: 9, 1: 9, 2: 9, 3: 9}, [1], True),
        ({0: 9, 1: 9, 2: 9, 3: 9}, [], True),
        ({0: 9, 1: 9, 2: 9}, [], False),
    ],
)
def test_it_is_in_every_complete_step_else_in_all_that_were_compared(excess_ms, complete, is_in_every):
    assert row_of(cells(excess_ms), steps(COMPUTE_MS), CALLS, complete)["is_in_every_step"] is is_in_every


@pytest.mark.parametrize(
    ("excess_ms", "most"),
    [
        ({0: 2, 1: 90, 2: 4, 3: 4}, (1,)),  # nine tenths exactly
        ({0: 50, 1: 3, 2: 3, 3: 44}, (0, 3)),
        ({0: 40, 1: 30, 2: 20, 3: 10}, ()),
        ({1: 90, 2: 10}, (1,)),
        ({1: 9}, ()),
    ],
)
def test_the_fewest_steps_with_nine_tenths_of_the_excess_are_half_of_them_at_most(excess_ms, most):
    assert row_of(cells(excess_ms), steps(COMPUTE_MS), CALLS, [0, 1, 2])["most_numbers"] == most


@pytest.mark.parametrize(("stage", "same", "peers_ms"), [("stage 1", (60, 40), 48), ("stage 1", (None, None), 51),
                                                         ("all", (60, 40), 51)])  # fmt: skip
def test_other_stages_compute_something_else_than_one_whose_gpu_is_slower(stage, same, peers_ms):
    """72 ms of which the same kernels take 1.5 times as long: as quick as others run these it is 48."""
    late = steps(COMPUTE_MS | {2: (50, 72, 72, 72)})
    late["peers"] = late["rank"].map({0: "all", 1: "all", 2: stage})
    same_ns, peers_same_ns = (float("nan") if own is None else own * MS for own in same)
    group = cells({1: 24, 2: 24}, same_ns=same_ns, peers_same_ns=peers_same_ns)
    assert row_of(group, late, CALLS, [0, 1, 2])["peers_ns"] == peers_ms * MS


@pytest.mark.parametrize(
    ("own_ns", "apart_ns", "name", "cause", "is_every_hosts"),
    [
        (10, 11, None, "host", True),
        (11, 11, None, "host", False),
        (None, 11, None, "host", False),
        (10, None, None, "host", False),
        (10, 11, "gc.collect", "host", False),
        (10, 11, None, "compute", False),
    ],
)
def test_a_host_that_is_not_apart_is_as_others_hosts_are(own_ns, apart_ns, name, cause, is_every_hosts):
    own, apart = (pd.NA if ns is None else ns for ns in (own_ns, apart_ns))
    row = {"own_host_ns": own, "apart_host_ns": apart, "name": name, "cause": cause}
    assert is_of_every_host(row) is is_every_hosts
