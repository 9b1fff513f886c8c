"""What every analysis promises, over the registry."""

from functools import cache

import pytest

from tests import once
from tests.builders import rank_trace
from tests.samples import RUNS, sample
from traceanalyzer.analyses import ANALYSES, combine, reduce_rank, run
from traceanalyzer.findings import find
from traceanalyzer.meaning.columns import ENDINGS, Unit, unit_of
from traceanalyzer.model import RankMeta, make_trace
from traceanalyzer.report.contents import build
from traceanalyzer.report.writers import WRITERS
from traceanalyzer.scale import Summary

OPS = [("compute", 0, 10, 1), ("comm", 5, 20, 2), ("copy", 30, 40, 12)]
STEPS = [(0, 10), (10, 20)]

NUMBERS = {
    Unit.NS,
    Unit.BYTES,
    Unit.FLOPS,
    Unit.PCT,
    Unit.GB_PER_S,
    Unit.TFLOPS_PER_S,
    Unit.COUNT,
    Unit.NUMBER,
    Unit.ID,
}


def empty_rank():
    return make_trace(RankMeta(1, "test", ("empty.json",), "kineto"))


TRACES = {
    "empty rank": [empty_rank()],
    "one rank": [rank_trace(OPS, steps=STEPS)],
    "no steps": [rank_trace(OPS)],
    "one of two is empty": [rank_trace(OPS, steps=STEPS), empty_rank()],
    "chosen steps": [
        rank_trace(OPS, steps=STEPS, wanted="1"),
        rank_trace(OPS, steps=STEPS, wanted="1", rank=1),
    ],
    "missing ranks": [rank_trace(OPS, steps=STEPS, world_size=4), rank_trace(OPS, steps=STEPS, rank=3)],
}


@cache
def results_of(name):
    return run(TRACES[name])


@pytest.mark.parametrize("traces", TRACES)
def test_survives(traces):
    results = results_of(traces)
    assert set(results) == set(ANALYSES)
    for name, result in results.items():
        assert list(result.to_frame()) == list(result.columns), name
        result.rows()


@pytest.mark.parametrize("traces", TRACES)
def test_every_kind_of_finding_survives(traces):
    find(results_of(traces))


@pytest.mark.parametrize(
    "traces", ["empty rank", pytest.param("one of two is empty", marks=pytest.mark.thorough), "chosen steps"]
)
def test_every_section_and_writer_makes_something_of_it(traces, tmp_path):
    """`tests/test_registries.py` has one rank; what fails in them raises."""
    report = build(Summary(results_of(traces), (), (), {}), "job")
    for name, write in WRITERS.items():
        for path in write(report, tmp_path):
            assert path.stat().st_size, name


@pytest.mark.parametrize("name", ANALYSES)
def test_gives_alone_what_it_gives_among_all(name):
    """It names all that it needs."""
    alone = run(TRACES["one rank"], [name])
    assert [*alone] == [name]
    assert alone[name].rows() == results_of("one rank")[name].rows()


@pytest.mark.parametrize("run_name", RUNS)
def test_keys_are_unique_and_columns_described_on_samples(run_name):
    for name, result in once.results(run_name).items():
        frame = result.to_frame()
        assert result.title, name
        assert result.keys, name
        assert not frame.duplicated(list(result.keys)).any(), name
        for column, meant in result.columns.items():
            values = frame[column].dropna()
            where = f"{name}.{column}"
            assert meant.definition, where
            kind = "flag" if values.dtype.kind == "b" else "number" if values.dtype.kind in "iuf" else "text"
            if len(values):
                told = "number" if meant.unit in NUMBERS else "flag" if meant.unit is Unit.FLAG else "text"
                assert told == kind, f"{where}: {meant.unit} of {values.dtype}"


def test_a_columns_unit_is_the_ending_of_its_name():
    told = {
        f"{name}.{column}": (meant.unit, unit_of(column))
        for name, known in ANALYSES.items()
        for column, meant in known.result.columns.items()
    }
    assert {
        where: units
        for where, units in told.items()
        if units[0] != units[1] and (units[1] or units[0] in ENDINGS.values())
    } == {}


@pytest.mark.parametrize("name", ANALYSES)
def test_runs_are_joined_by_columns_that_are_there_and_judged_by_one_time(name):
    known = ANALYSES[name].result
    assert set(known.keys) | set(known.joined_by) <= set(known.columns)
    assert sum(column.leads for column in known.columns.values()) <= 1


def test_the_order_of_ranks_does_not_matter():
    parts = {trace.rank: reduce_rank(trace) for trace in sample("moe").ranks}
    forward, backward = combine(parts), combine(dict(reversed(parts.items())))
    assert [name for name in ANALYSES if forward[name].rows() != backward[name].rows()] == []


@pytest.mark.parametrize("name", ANALYSES)
def test_is_documented(name):
    analysis = ANALYSES[name]
    for function in (analysis.across, analysis.per_rank):
        assert function is None or function.__doc__
