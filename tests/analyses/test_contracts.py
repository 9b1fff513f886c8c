"""What every analysis promises, over the registry."""

import pytest

from tests.builders import rank_trace
from tests.samples import RUNS, sample
from traceanalyzer.analyses import ANALYSES, combine, reduce_rank, run
from traceanalyzer.model import RankMeta, make_trace

OPS = [("compute", 0, 10, 1), ("comm", 5, 20, 2), ("copy", 30, 40, 12)]
STEPS = [(0, 10), (10, 20)]

UNITS = ("_ns", "_bytes", "_pct", "_ratio", "_per_s", "_flops")


def empty_rank():
    return make_trace(RankMeta(1, "test", ("empty.json",), "kineto"))


@pytest.mark.parametrize(
    "traces",
    [
        [empty_rank()],
        [rank_trace(OPS, steps=STEPS)],
        [rank_trace(OPS)],
        [rank_trace(OPS, steps=STEPS), empty_rank()],
        [rank_trace(OPS, steps=STEPS, world_size=4), rank_trace(OPS, steps=STEPS, rank=3)],
    ],
    ids=["empty rank", "one rank", "no steps", "one of two is empty", "missing ranks"],
)
@pytest.mark.parametrize("name", ANALYSES)
def test_survives(name, traces):
    result = run(traces, [name])[name]
    assert list(result.to_frame()) == list(result.columns)
    result.rows()


@pytest.mark.parametrize("run_name", RUNS)
def test_keys_are_unique_and_columns_described_on_samples(run_name):
    for name, result in run(sample(run_name).ranks).items():
        frame = result.to_frame()
        assert result.title, name
        assert result.keys, name
        assert not frame.duplicated(list(result.keys)).any(), name
        assert all(result.columns.values()), name


@pytest.mark.parametrize("name", ANALYSES)
def test_the_order_of_ranks_does_not_matter(name):
    parts = {trace.rank: reduce_rank(trace, [name]) for trace in sample("moe").ranks}
    forward, backward = combine(parts, [name]), combine(dict(reversed(parts.items())), [name])
    assert forward[name].rows() == backward[name].rows()


@pytest.mark.parametrize("name", ANALYSES)
def test_is_documented(name):
    analysis = ANALYSES[name]
    for function in (analysis.across, analysis.per_rank):
        assert function is None or function.__doc__
