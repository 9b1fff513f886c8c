"""Hosts that need about as long: what stands for itself, and what the slower one would gain all the same."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.findings.hosts.host_words import IdleForHosts, advice
from traceanalyzer.findings.hosts.hosts import _beside_late
from traceanalyzer.findings.hosts.slow_hosts import _acquitted
from traceanalyzer.findings.tools import TORCH

MS = 1_000_000


@pytest.mark.parametrize(
    ("needed_ms", "part_of", "needed_left"), [((85, 98), None, 2), ((40, 98), "late 1", 0)], ids=["all", "one"]
)
def test_what_all_hosts_need_is_no_part_of_a_lateness(needed_ms, part_of, needed_left):
    means = pd.DataFrame({"host_ns": [10 * MS, 70 * MS], "window_ns": [100 * MS] * 2})
    hosts = IdleForHosts(
        1, 70 * MS, 70.0, SimpleNamespace(steps=[1]), None, means, pd.Series(needed_ms) * MS, None, None, False, True, False, False
    )  # fmt: skip
    found, now_part_of = _beside_late(hosts, "late 1")
    assert (now_part_of, found.is_of_late, len(found.needed_ns)) == (part_of, part_of is not None, needed_left)


@pytest.mark.parametrize(("apart_ms", "is_told"), [(90, True), (75, False)])
def test_a_host_that_is_no_later_than_hosts_are_is_told_with_its_gain(apart_ms, is_told):
    row = {"ranks": "1", "cause": "host", "name": None, "own_host_ns": 80 * MS, "apart_host_ns": apart_ms * MS,
           "gain_ns": 20 * MS, "unprofiled_gain_ns": 5 * MS, "step_ns": 100 * MS, "gain_is_bound": False, "gain_error_ns": 0,
           "gain_is_of_capture": False}  # fmt: skip
    said = _acquitted(1, "rank 0's", SimpleNamespace(rows=lambda: [row]), 3)
    assert ("20 ms shorter (an estimated 5 ms shorter without the profiler)" in said.replace("\u202f", " ")) is is_told


def test_who_waits_in_an_exchange_of_the_cpu_is_told_of_nccl():
    assert advice("gloo:all_reduce", TORCH, is_sure=True).startswith("Exchange what lies on GPUs with NCCL")
    assert advice("my range", TORCH, is_sure=True).startswith("Shorten my range")
