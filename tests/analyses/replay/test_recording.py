"""What recording takes the hosts is taken away where they bind, and only where its cost is known."""

import dataclasses

import pytest

from tests import once
from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.analyses.replay.changes import COST_NS, LEAST, MOST, Change
from traceanalyzer.analyses.replay.replay import gain_of, unprofiled_steps_ns

MS, US = 1_000_000, 1_000
LAUNCHES, RECORDED = 5, 100


def launching(kernel_ns):
    """A host that launches a kernel every 2 ms, and has a hundred operators recorded before each launch."""
    begins = [number * 2 * MS for number in range(LAUNCHES)]
    ops = [("gemm", begin + 10 * US, begin + 10 * US + kernel_ns, number) for number, begin in enumerate(begins, 1)]
    calls = [("cudaLaunchKernel", begin, begin + 5 * US) for begin in begins]
    host_ops = [
        ("aten::view", begin + 15 * US * (1 + number), begin + 15 * US * (1 + number) + 9 * US)
        for begin in begins
        for number in range(RECORDED)
    ]
    return host_trace(ops, calls, host_ops=host_ops)


def replay_of(trace):
    return run([trace], ["replay"])["replay"]


@pytest.mark.parametrize("cost", [*COST_NS])
def test_a_job_that_its_host_binds_is_shorter_by_what_was_recorded(cost):
    gain = gain_of(replay_of(launching(50 * US)), Change("profiler", cost))
    # Of the calls only those between the first launch and the last.
    assert gain.gain_ns == (LAUNCHES - 1) * (RECORDED + 1) * COST_NS[cost]


def test_a_job_that_its_gpu_binds_is_as_long():
    replay = replay_of(launching(1_990 * US))
    gain = gain_of(replay, Change("host"))
    assert gain.unprofiled_gain_ns < 20 * US, "the GPU works all the time without the profiler"
    shortest, longest = unprofiled_steps_ns(replay)
    assert longest - shortest < 20 * US


def test_each_gain_stands_beside_that_of_the_job_without_the_profiler():
    replay = replay_of(launching(50 * US))
    gain = gain_of(replay, Change("host"))
    before, after = gain.unprofiled_ns
    assert before == gain_of(replay, Change("profiler", "none")).after_ns
    assert after == gain.after_ns, "hosts that take no time are not shorter without the profiler"


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_a_host_of_another_speed_is_that_much_of_what_is_left_without_the_profiler(times):
    gain = gain_of(replay_of(launching(50 * US)), Change("host", times))
    before, after = gain.unprofiled_ns
    assert after == pytest.approx(times * before, rel=0.05)


def test_a_host_like_its_peers_takes_what_they_take_without_the_profiler():
    """Both launch alike, in as long; of one's time half is recording, of the other's nothing."""
    begins = [number * MS for number in range(6)]
    traces = []
    for rank in (0, 1):
        ops = [("gemm", begin + 10 * US, begin + 60 * US, number) for number, begin in enumerate(begins, 1)]
        calls = [("cudaLaunchKernel", begin, begin + 5 * US) for begin in begins]
        written = [("aten::view", begin + (20 + 3 * place) * US, begin + (21 + 3 * place) * US)
                   for begin in begins for place in range(150 * rank)]  # fmt: skip
        traces.append(host_trace(ops, calls, host_ops=written, rank=rank))
    gain = gain_of(run(traces, ["replay"])["replay"], Change("host", "peers", frozenset({0})))
    before, after = gain.unprofiled_ns
    assert before > 0.99 * gain.before_ns, "rank 0 has nothing recorded but its launches"
    assert after == pytest.approx(before - 5 * 150 * COST_NS["none"], rel=0.02)


@pytest.mark.parametrize(
    ("nodes", "call_us", "counted"),
    [
        pytest.param(8, 100, 8, id="each of its operations"),
        pytest.param(40, 100, 15, id="no more than fit in the call"),
        pytest.param(40, 9, 0, id="a launch as quick as without"),
    ],
)
def test_what_a_graph_launches_is_written_down_in_its_launch(nodes, call_us, counted):
    begins = [number * 2 * MS for number in range(LAUNCHES)]
    calls = [("cudaGraphLaunch", begin, begin + call_us * US) for begin in begins]
    ops = [
        ("gemm", begin + (110 + 5 * place) * US, begin + (114 + 5 * place) * US, number)
        for number, begin in enumerate(begins, 1)
        for place in range(nodes)
    ]
    gain = gain_of(replay_of(host_trace(ops, calls)), Change("profiler", "none"))
    assert gain.gain_ns == (LAUNCHES - 1) * (1 + counted) * COST_NS["none"]


WORKERS, ITSELF = (
    f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__" for kind in ("MultiProcessing", "SingleProcess")
)


def loading(loader, load_ns):
    """A host that has a hundred operators recorded, takes a batch, and launches a kernel, every 10 ms."""
    begins = [number * 10 * MS for number in range(LAUNCHES)]
    ops = [("gemm", begin + 10 * US, begin + 60 * US, number) for number, begin in enumerate(begins, 1)]
    calls = [("cudaLaunchKernel", begin, begin + 5 * US) for begin in begins]
    host_ops = [
        ("aten::view", begin + 15 * US * (1 + number), begin + 15 * US * (1 + number) + 9 * US)
        for begin in begins
        for number in range(RECORDED)
    ]
    taken = [(loader, begin - 50 * US - load_ns, begin - 50 * US) for begin in begins[1:]]
    return host_trace(ops, calls, host_ops=[*host_ops, *taken])


@pytest.mark.parametrize(
    ("loader", "load_ns", "is_as_long"),
    [
        pytest.param(WORKERS, 8 * MS, True, id="workers make the batches"),
        pytest.param(WORKERS, 500 * US, False, id="they are there in time"),
        pytest.param(ITSELF, 8 * MS, False, id="the host makes them itself"),
    ],
)
def test_who_waits_for_workers_waits_for_them_without_the_profiler_too(loader, load_ns, is_as_long):
    replay = replay_of(loading(loader, load_ns))
    written_ns = (LAUNCHES - 1) * (RECORDED + 2) * COST_NS["none"]
    assert gain_of(replay, Change("profiler", "none")).gain_ns == (0 if is_as_long else written_ns)
    ready = gain_of(replay, Change("data", 0.0))
    assert ready.gain_ns == (LAUNCHES - 1) * load_ns
    waited_ns = ready.gain_ns + (written_ns if is_as_long else 0)
    assert ready.unprofiled_gain_ns == waited_ns, "with batches that are there nothing is waited for"


def test_a_wait_for_the_gpu_between_two_for_workers_takes_up_what_was_saved_before_it():
    """Each 10 ms: a launch, 40 operators, a wait until its kernel is done, 100 operators, a batch that is late."""
    begins = [number * 10 * MS for number in range(LAUNCHES)]
    ops = [("gemm", begin + 10 * US, begin + 1_500 * US, 2 * number + 1) for number, begin in enumerate(begins)]
    calls = [call for begin in begins for call in (
        ("cudaLaunchKernel", begin, begin + 5 * US), ("cudaDeviceSynchronize", begin + 700 * US, begin + 1_502 * US))]  # fmt: skip
    at = [*range(20, 620, 15), *range(1_510, 3_010, 15)]
    host_ops = [("aten::view", begin + each * US, begin + (each + 9) * US) for begin in begins for each in at]
    taken = [(WORKERS, begin - 6 * MS, begin - 50 * US) for begin in begins[1:]]
    replay = replay_of(host_trace(ops, calls, host_ops=[*host_ops, *taken]))
    gain = gain_of(replay, Change("profiler", "none"))
    assert gain.unprofiled_ns == (gain.before_ns, gain.before_ns), "no shorter, and no longer"


def test_of_other_profilers_nothing_is_known():
    trace = launching(50 * US)
    replay = replay_of(dataclasses.replace(trace, meta=dataclasses.replace(trace.meta, format="nsys")))
    assert gain_of(replay, Change("host")).unprofiled_ns is None
    assert unprofiled_steps_ns(replay) is None


def test_the_table_has_both_gains():
    table = once.results("ddp", ["what_ifs"])["what_ifs"].to_frame().set_index("option")
    row = table.loc["--profiler none"]
    assert row["before_ns"] > row["after_ns"] == row["unprofiled_ns"] > 0
    hosts = table.loc["--host none"]
    assert hosts["unprofiled_gain_ns"] < hosts["gain_ns"]
    assert COST_NS[LEAST] < COST_NS["none"] < COST_NS[MOST]
