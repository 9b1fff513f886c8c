"""Collectives that the CPU carries out: whose they are, and since when the host waits in them."""

from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.analyses.host.cpu_collectives import cpu_collectives

MAIN, GLOO, ASIDE, SECOND = 1, 9, 5, 10
MS = 1_000_000


def of(ranges, host_ops, copies=()):
    """Name, start, since and end of each; the main thread launches a product before, others copies to the GPU."""
    calls = [("cudaLaunchKernel", 1, 2, MAIN), *(("cudaMemcpyAsync", at, at + 2, thread) for at, thread in copies)]
    ops = [("gemm", 5, 9, 1), *(("HtoD", at + 1, at + 3, number) for number, (at, _) in enumerate(copies, 2))]
    trace = host_trace(ops, calls, ranges=ranges, host_ops=host_ops)
    return [tuple(row) for row in cpu_collectives(trace)[["name", "start_ns", "since_ns", "end_ns"]].to_numpy()]


def test_one_that_is_waited_for_at_once_and_one_beside_other_work():
    ranges = [("gloo:barrier", 20, 40, GLOO), ("gloo:all_reduce", 60, 90, GLOO)]
    ops = [("c10d::barrier", 18, 22, MAIN), ("c10d::allreduce_", 58, 61, MAIN), ("aten::mm", 65, 75, MAIN)]
    assert of(ranges, ops) == [("gloo:barrier", 20, 20, 40), ("gloo:all_reduce", 60, 75, 90)]


def test_one_that_ends_beside_work_is_not_waited_for():
    ops = [("c10d::allreduce_", 18, 21, MAIN), ("aten::mm", 25, 75, MAIN)]
    assert of([("gloo:all_reduce", 20, 40, GLOO)], ops) == [("gloo:all_reduce", 20, 40, 40)]


def test_what_another_thread_calls_holds_up_nobody():
    assert of([("gloo:all_gather", 20, 40, GLOO)], [("c10d::allgather_", 18, 21, ASIDE)]) == []


def test_a_monitored_barrier_is_one_and_no_messages():
    ranges = [("gloo:recv", 21, 35, MAIN), ("gloo:send", 36, 38, MAIN), ("gloo:barrier", 60, 70, GLOO)]
    ops = [("c10d::monitored_barrier_", 20, 40, MAIN), ("c10d::barrier", 58, 61, MAIN)]
    assert of(ranges, ops) == [("gloo:monitored_barrier", 20, 20, 40), ("gloo:barrier", 60, 60, 70)]


def test_one_of_tensors_on_the_gpu_ends_with_the_exchange():
    """Its own thread copies them from and to the GPU: that is no work of the host's, which waits all the while."""
    copies = [(21, GLOO), (80, GLOO)]
    assert of([("gloo:all_reduce", 20, 90, GLOO)], [("aten::mm", 25, 30, MAIN)], copies) == [
        ("gloo:all_reduce", 20, 30, 80)
    ]


def test_who_hands_over_a_second_one_does_not_wait_for_the_first_yet():
    ranges = [("gloo:all_reduce", 20, 60, GLOO), ("gloo:all_reduce", 35, 90, SECOND)]
    assert of(ranges, [("aten::mm", 25, 30, MAIN)]) == [
        ("gloo:all_reduce", 20, 35, 60),
        ("gloo:all_reduce", 35, 35, 90),
    ]


def exchanging_on_the_cpu(rank, late_ms):
    """Three steps of 20 ms: a product, gradients exchanged by another thread, which copies them back, the rest."""
    ops, calls, ranges, host_ops = [], [], [], []
    for step in range(4):
        begin = 20 * MS * step
        came = begin + round(late_ms * MS)
        names = (("cudaLaunchKernel", came, MAIN), ("cudaMemcpyAsync", begin + 16 * MS, GLOO),
                 ("cudaLaunchKernel", begin + 17 * MS, MAIN))  # fmt: skip
        for (name, at, thread), what in zip(names, ("gemm", "HtoD", "gemm"), strict=True):
            calls.append((name, at, at + MS // 10, thread))
            ops.append((what, at + MS // 5, at + MS // 2, len(calls)))
        ranges += [(f"ProfilerStep#{step}", begin, begin + 20 * MS, MAIN)]
        ranges += [("gloo:all_reduce", came + MS // 2, begin + 16 * MS + MS // 2, GLOO)]
        host_ops += [("aten::mm", came, came + MS // 4, MAIN), ("aten::add", begin + 17 * MS, begin + 20 * MS, MAIN)]
    return host_trace(ops, calls, ranges=ranges, host_ops=host_ops, rank=rank)


def test_a_rank_that_is_late_to_exchanges_on_the_cpu_alone_is_named():
    traces = [exchanging_on_the_cpu(0, 0.5), exchanging_on_the_cpu(1, 12.5)]
    results = run(traces, ["episodes", "host_silences"])
    found = results["episodes"].to_frame()
    assert found[["ranks", "collective"]].to_numpy().tolist() == [["1", "gloo:all_reduce"]]
    # The last step ends with a copy that another thread launches: the replay knows of nothing that thread waits for.
    assert abs(found["gain_ns"][0] - 12 * MS) < MS
    silent = results["host_silences"].to_frame()
    assert silent["rank"].tolist() == [1], "rank 0 waits in the exchange: that is recorded"
