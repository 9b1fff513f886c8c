"""A rank whose streams overlap less while it waits computes longer, and is not late."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.overlapping_compute import without_overlapping


@pytest.mark.parametrize(
    ("kernels_ns", "wait_ns", "peers", "part", "is_late"),
    [
        (500, 40, "all", "compute_ns", False),
        (514, 40, "all", "compute_ns", False),
        (516, 40, "all", "compute_ns", True),
        (500, 14, "all", "compute_ns", True),
        (500, 26, "all", "compute_ns", False),
        (500, 24, "all", "compute_ns", True),
        (500, 40, "all", "host_ns", True),
        (500, 40, "stage 3", "compute_ns", True),
    ],
    ids=[
        "the same kernels",
        "little longer",
        "longer",
        "hardly waits",
        "waits as others",
        "waits less",
        "its host",
        "alone",
    ],
)
def test_who_waits_as_others_and_runs_kernels_as_long_is_not_late(kernels_ns, wait_ns, peers, part, is_late):
    """A rank computes 30 ns longer than the others, whose kernels take 500 ns, and who wait for 40 ns."""
    late = pd.DataFrame(
        {"rank": [0, 1, 2, 3], "step": 1, "peers": ["all"] * 3 + [peers], "exposed_wait_ns": [40] * 3 + [wait_ns]}
    )
    work = pd.DataFrame(
        {"rank": [0, 1, 2, 3], "step": 1, "part": "compute_ns", "what": "kernel", "total_ns": [500] * 3 + [kernels_ns]}
    )
    found = pd.DataFrame({"rank": [3], "step": [1], "part": [part], "excess_ns": [30]})
    assert len(without_overlapping(found, late, work)) == is_late


def test_other_parts_of_the_same_step_stay_and_so_does_who_hardly_waits():
    late = pd.DataFrame({"rank": range(4), "step": 1, "peers": "all", "exposed_wait_ns": 40})
    work = pd.DataFrame({"rank": range(4), "step": 1, "part": "compute_ns", "what": "kernel", "total_ns": 500})
    found = pd.DataFrame({"rank": 3, "step": 1, "part": ["compute_ns", "host_ns"], "excess_ns": [30, 30]})
    assert without_overlapping(found, late, work)["part"].tolist() == ["host_ns"]
    assert len(without_overlapping(found, late.assign(exposed_wait_ns=5), work)) == 2


def test_ranks_that_are_late_themselves_are_no_measure():
    """Half of the ranks compute longer: beside those in time the kernels of both are longer, and both wait for less."""
    late = pd.DataFrame({"rank": range(4), "step": 1, "peers": "all", "exposed_wait_ns": [70, 70, 35, 0]})
    work = pd.DataFrame(
        {"rank": range(4), "step": 1, "part": "compute_ns", "what": "kernel", "total_ns": [500, 500, 530, 560]}
    )
    found = pd.DataFrame({"rank": [2, 3], "step": 1, "part": "compute_ns", "excess_ns": [30, 60]})
    assert len(without_overlapping(found, late, work)) == 2


def test_who_is_held_against_nobody_is_not_left_out():
    late = pd.DataFrame({"rank": range(3), "step": 1, "peers": ["all", "all", "stage 3"], "exposed_wait_ns": 40})
    work = pd.DataFrame({"rank": range(3), "step": 1, "part": "compute_ns", "what": "kernel", "total_ns": 500})
    found = pd.DataFrame({"rank": [2], "step": 1, "part": "compute_ns", "excess_ns": [30]})
    assert len(without_overlapping(found, late, work)) == 1


def test_without_kernels_by_name_nothing_is_left_out():
    late = pd.DataFrame({"rank": [0, 1], "step": 1, "peers": "all", "exposed_wait_ns": 40})
    found = pd.DataFrame({"rank": [1], "step": [1], "part": ["compute_ns"], "excess_ns": [30]})
    assert (
        len(without_overlapping(found, late, pd.DataFrame(columns=["rank", "step", "part", "what", "total_ns"]))) == 1
    )
