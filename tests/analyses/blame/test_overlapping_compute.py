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
        (500, 40, "stage 3", "compute_ns", False),
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


def test_without_kernels_by_name_nothing_is_left_out():
    late = pd.DataFrame({"rank": [0, 1], "step": 1, "peers": "all", "exposed_wait_ns": 40})
    found = pd.DataFrame({"rank": [1], "step": [1], "part": ["compute_ns"], "excess_ns": [30]})
    assert (
        len(without_overlapping(found, late, pd.DataFrame(columns=["rank", "step", "part", "what", "total_ns"]))) == 1
    )
