"""What is wrong reaches all that is made from it, by the registry alone."""

from weakref import ref

import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import ANALYSES, combine_tables, engine, reached_by, reduce_rank
from traceanalyzer.analyses.engine import RANK_MAKERS, needs_of, with_last_uses, with_needed
from traceanalyzer.analyses.integrity.checks import EVENTS
from traceanalyzer.analyses.registry import SHARED


@pytest.mark.parametrize(
    ("sources", "reached", "spared"),
    [
        (["kernels"], {"kernels", "kernels_over_ranks"}, {"headline", "streams"}),
        (["steps"], {"steps", "headline", "balance", "replay", "what_ifs", "critical_path"}, {"kernels", "memory"}),
        (["calls"], {"nccl", "collective_waits", "stragglers", "pipelines"}, {"headline", "kernels", "cuda_api"}),
        (["tree"], {"operators", "modules", "categories", "efficiency"}, {"breakdown", "kernels"}),
        (["counters"], {"memory", "memory_fit", "gpu_metrics"}, {"headline", "replay", "memory_calls"}),
        (["gpu_ops"], {"operators", "categories", "copies", "mfu", "streams", "modules", "what_ifs"}, {"cuda_api"}),
        ([EVENTS], {*ANALYSES} - {"integrity", "ranks"}, {"integrity", "ranks"}),
        ([], set(), {"headline"}),
    ],
)  # fmt: skip
def test_all_that_rests_on_it_is_reached_and_nothing_else(sources, reached, spared):
    found = set(reached_by(sources))
    assert reached <= found
    assert not spared & found


def test_an_analysis_is_reached_by_all_that_it_needs():
    reached = {one: set(reached_by([one])) for one in {*ANALYSES} - {"integrity", "ranks"}}
    for name in reached:
        needed = [one for one in with_needed([name]) if one in reached]
        assert all(name in reached[one] for one in needed), name


def test_what_is_shared_goes_when_the_last_analysis_that_needs_it_is_made():
    names = [name for name in ANALYSES if ANALYSES[name].per_rank]
    uses = with_last_uses(names)
    order = [name for name, _ in uses]
    assert sorted(order) == sorted(names)
    assert sorted(one for _, unused in uses for one in unused) == sorted(SHARED)
    for place, (_, unused) in enumerate(uses):
        assert all(unused.isdisjoint(needs_of(later, RANK_MAKERS)) for later in order[place + 1 :])
    # Those that need the same follow each other: nothing is held that only a later one needs.
    held = [place for place, name in enumerate(order) if "shares" in needs_of(name, RANK_MAKERS)]
    assert held == [*range(held[0], held[-1] + 1)]


def test_a_rank_s_shared_tables_are_let_go_while_others_are_made(monkeypatch):
    made, lives = [], []

    def parts(trace):
        made.append(SHARED["parts_of_steps"](trace))
        table = made.pop()
        lives.append(ref(table))
        return table

    def last(trace, tree, scopes):
        assert [live() for live in lives] == [None]
        return ANALYSES["timeline"].per_rank(trace, tree, scopes)

    later = {**ANALYSES, "timeline": engine.ANALYSES["timeline"].__class__(ANALYSES["timeline"].across, last)}
    monkeypatch.setattr(engine, "SHARED", {**SHARED, "parts_of_steps": parts})
    monkeypatch.setattr(engine, "ANALYSES", later)
    tables = reduce_rank(rank_trace([("compute", 0, 9, 0)]), ("step_needs", "timeline"))
    assert lives
    assert [*tables["timeline"]["end_ns"]] == [9]


def test_tables_go_when_results_are_made_of_them():
    tables = {name: {0: table} for name, table in reduce_rank(rank_trace([("compute", 0, 9, 0)])).items()}
    assert tables
    assert combine_tables(tables, 1, ("headline", "breakdown", "gaps"))
    assert not {"breakdown", "gaps"} & {*tables}
    assert "overlap" in tables  # headline needs it, and whoever asks for it later finds it there
