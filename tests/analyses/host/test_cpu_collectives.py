"""Collectives that the CPU carries out: whose they are, and since when the host waits in them."""

from tests.host_builders import host_trace
from tests.simulator.analysed import saved_ns
from traceanalyzer.analyses import run
from traceanalyzer.analyses.host.activity import cpu_collectives

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
    results = run(traces, ["episodes", "host_silences", "replay"])
    found = results["episodes"].to_frame()
    assert found[["ranks", "collective"]].to_numpy().tolist() == [["1", "gloo:all_reduce"]]
    # The last step ends with a copy that another thread launches: the replay knows of nothing that thread waits for.
    assert abs(saved_ns(results["replay"], *results["episodes"].table["changes"][0]) - 12 * MS) < MS
    silent = results["host_silences"].to_frame()
    assert silent["rank"].tolist() == [1], "rank 0 waits in the exchange: that is recorded"
