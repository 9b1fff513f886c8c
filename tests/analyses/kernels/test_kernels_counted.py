"""Kernels against a slow implementation."""

from statistics import median

from hypothesis import given

from tests.analyses.random_events import RANKS, kineto_events, read
from tests.conftest import examples
from traceanalyzer.analyses import run

FIGURES = ("calls", "total_ns", "median_ns", "min_ns", "max_ns", "streams")


def counted(rank):
    found = {}
    for name in {op.name for op in rank.gpu}:
        spent = [op.end - op.start for op in rank.gpu if op.name == name]
        streams = ",".join(map(str, sorted({op.stream for op in rank.gpu if op.name == name})))
        found[name] = dict(
            zip(FIGURES, (len(spent), sum(spent), median(spent), min(spent), max(spent), streams), strict=True)
        )
    return found


def figures(traces, rank=0):
    rows = run(traces, ["kernels"])["kernels"].rows()
    return {row["name"]: {name: row[name] for name in FIGURES} for row in rows if row["rank"] == rank}


@examples(10)
@given(RANKS)
def test_kernels_are_those_counted(tmp_path_factory, rank):
    assert figures([read(tmp_path_factory.getbasetemp(), kineto_events(rank))]) == counted(rank)
