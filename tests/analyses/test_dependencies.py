"""What is wrong reaches all that is made from it, by the registry alone."""

from traceanalyzer.analyses import ANALYSES, reached_by
from traceanalyzer.analyses.engine import with_needed


def test_an_analysis_is_reached_by_all_that_it_needs():
    reached = {one: set(reached_by([one])) for one in {*ANALYSES} - {"integrity", "ranks"}}
    for name in reached:
        needed = [one for one in with_needed([name]) if one in reached]
        assert all(name in reached[one] for one in needed), name
