"""Who comes last to collectives of the CPU, in captures without GPU work."""

import pytest
from traceanalyzer.findings.hosts.slow_hosts import late_to_cpu_collectives

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank
from traceanalyzer.model import RankMeta

NAMES = ("host_meetings", "host_work", "host_silences")
MS = 1_000_000
STEP = 100 * MS


def results_of(
    late, *, what="aten::mm", name="gloo:all_reduce", beside=False, ended=(), calls=(2, 2, 2, 2), clocks=None, more=()
):
    """Steps of 100 ms: each rank computes for 10 ms, late ones longer, and twice a step all meet for 5 ms.

    Args:
        late: for each rank how many ms longer.
        what: what takes a late one longer; nothing recorded where empty.
        beside: the main thread computes while it is met.
        ended: ranks whose collectives end before the last rank came.
        calls: of each rank in a step.
        clocks: of each rank how many ms ahead its clock is, of a host of its own.
        more: names of further Results.
    """
    names, traces = (*NAMES, *more), {}
    for rank, longer in enumerate(late):
        ops, ranges = [], []
        for step in range(3):
            begin = STEP * step + (clocks[rank] * MS if clocks else 0)
            ranges.append((f"ProfilerStep#{step}", begin, begin + STEP))
            for place in range(calls[rank]):
                since = begin + 50 * MS * place
                come = since + (10 + longer) * MS
                end = since + (15 if rank in ended else 15 + max(late)) * MS
                ops.append(("aten::add", since, since + 10 * MS, 1))
                ops += [(what, since + 10 * MS, come, 1)] if longer and what else []
                ops += [("c10d::allreduce_", come, come + 1_000, 1)]
                ops += [("aten::relu", come + 2_000, end, 1)] if beside else []
                ranges.append((name, come + 2_000, end, 5))
        meta = RankMeta(rank, "test", ("test.json",), "kineto", host=f"node{rank}") if clocks else None
        traces[rank] = reduce_rank(host_trace(host_ops=ops, ranges=ranges, rank=rank, meta=meta), names)
    return combine(traces, names)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"late": (0, 20)}, "Rank 1 comes last to 6 of 6 collectives of the CPU: rank 0 waits 40 ms a step for it, 40 % of a"),
        ({"late": (0, 20), "name": "mpi:all_reduce"}, "Rank 1 comes last to 6 of 6 collectives of the CPU"),
        ({"late": (0, 20)}, " of a step; aten::mm takes rank 1 40 ms a step, the others 0 ns."),
        ({"late": (0, 20), "what": ""}, "nothing is recorded of what rank 1 does for 70 ms a step, the others 30 ms."),
        ({"late": (0, 0, 20, 19)}, "Ranks 2 and 3 come last"),
        ({"late": (0, 0, 20, 0)}, "Rank 2 comes last"),
        ({"late": (0, 2)}, None),
        ({"late": (0, 20, 18, 19)}, None),
        # Those that leave at once say nothing of who came last; nor do ranks that wait beside other work.
        ({"late": (0, 20), "name": "gloo:broadcast"}, None),
        ({"late": (0, 20), "beside": True}, None),
        # They are not in the same collective, or not in as many.
        ({"late": (0, 20), "ended": (0,)}, None),
        ({"late": (0, 20), "calls": (2, 1)}, None),
        ({"late": (20,)}, None),
        # Whose clock is ahead is not late; nor does it hide who is.
        ({"late": (0, 0), "clocks": (0, 4)}, None),
        ({"late": (0, 20), "clocks": (30, 0)}, "Rank 1 comes last to 6 of 6 collectives of the CPU: rank 0 waits 40 ms a step"),
    ],
)  # fmt: skip
def test_who_comes_last_is_named(made, said):
    results = results_of(**made)
    findings = late_to_cpu_collectives(*(results[name] for name in NAMES))
    assert len(findings) == (said is not None)
    if said:
        assert said in findings[0].title
