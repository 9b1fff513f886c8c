"""No share of a window is more than all of it, however much CPU time lies outside it or on several threads at once."""

import gzip
import json
import re

import pytest

import traceanalyzer as ta
from tests import once
from tests.asked import ASKED, said_of
from tests.host_builders import host_trace
from tests.samples import EVERY
from tests.simulator import capture, kineto
from tests.simulator import run as simulate
from tests.simulator.scoreboard import EVERY_CASE, recorded
from traceanalyzer.analyses import run
from traceanalyzer.findings import find
from traceanalyzer.model import RankMeta

MS = 1_000_000

_SHARE = re.compile(r"([\d,.]+) % of (?:a step|an iteration|the capture|all steps)")

_JOBS = ("offload, even", "all empty their caches, one GPU", "hosts meet in an all-reduce of the CPU, a loader")


def shares(found):
    return [float(each.replace(",", "")) for item in found for each in _SHARE.findall(item.title)]


@pytest.mark.parametrize("name", EVERY)
def test_of_captures(name):
    assert max(shares(find(once.results(name))), default=0.0) <= 100


@pytest.mark.parametrize("has_steps", [True, False], ids=["steps", "no steps"])
@pytest.mark.parametrize("case", [case for case in EVERY_CASE if case.name in _JOBS], ids=lambda case: case.name)
def test_of_simulated_jobs(tmp_path, case, has_steps):
    truth = simulate(case.job(case.faults))
    kineto.write(capture(truth, recorded(case, truth)), tmp_path)
    for path in [] if has_steps else tmp_path.iterdir():
        document = json.loads(gzip.decompress(path.read_bytes()))
        document["traceEvents"] = [one for one in document["traceEvents"] if "ProfilerStep" not in str(one.get("name"))]
        path.write_bytes(gzip.compress(json.dumps(document).encode()))
    told = shares(find(run(ta.load(tmp_path).ranks, ASKED)))
    assert told
    assert max(told) <= 100


def test_what_was_made_ready_before_the_first_kernel_is_no_part_of_the_gpus_window():
    """900 ms of compiling, operators and calls for memory, before and into 100 ms in which a GPU mostly idles."""
    ops = [("gemm", (900 + 10 * at) * MS, (901 + 10 * at) * MS, at + 1) for at in range(11)]
    calls = [("cudaLaunchKernel", (899 + 10 * at) * MS, (900 + 10 * at) * MS) for at in range(11)]
    calls += [("cudaMalloc", at * MS, (at + 90) * MS, thread) for at in range(0, 990, 90) for thread in (1, 2)]
    compiled = [("compile_fx (dynamo_timed)", 0, 950 * MS), ("compile_fx (dynamo_timed)", 0, 950 * MS, 2)]
    slow = [("mylib::plan", at * MS, (at + 89) * MS) for at in range(0, 990, 90)]
    found = said_of(host_trace(ops, calls, host_ops=slow, ranges=compiled))
    told = shares(found)
    assert any("compiles" in item.title for item in found)
    assert max(told) <= 100
    assert all(item.gain_ns is None or item.gain_ns <= 101 * MS for item in found)


def test_two_threads_in_collectives_of_the_cpu_are_in_them_once():
    ranges = [("ProfilerStep#1", 0, 200 * MS), ("ProfilerStep#2", 200 * MS, 400 * MS)]
    ranges += [("gloo:all_reduce", (10 + at) * MS, (190 + at) * MS, thread) for at in (0, 200) for thread in (2, 3)]
    (row,) = run([host_trace(ranges=ranges, meta=RankMeta(0, "test", (), "kineto", is_host_only=True))],
                 ["host_work"])["host_work"].rows()  # fmt: skip
    assert (row["role"], row["threads"], row["host_per_step_ns"]) == ("collectives", 2, 180 * MS)
