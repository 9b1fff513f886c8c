"""The concluding sentence of a comparison: which path bound the step before, and which binds it now."""

import pandas as pd

from tests.diff.captured import capture, steady
from traceanalyzer.report.comparison import path


def _captured(label, *rows):
    held = capture(steady(90, 10))
    table = pd.DataFrame(rows, columns=["rank", "category", "name", "path_ns"])
    return type(held)(label, held.source, {"critical_path": table}, held.steps, held.is_exact)


def test_the_path_before_and_the_path_now_are_named_by_rank_and_operator():
    before = _captured("before", (0, "host", "forward", 20), (1, "compute", "aten::mm", 80))
    after = _captured("after", (0, "host", "forward", 60), (1, "compute", "aten::mm", 40))
    said = path.sentence(before, after)
    assert said == (
        "before was bound by rank 1's compute, most of it aten::mm (80 % of the critical path); "
        "after is by rank 0's host (60 % of the critical path). Hosts are slower under a profiler: time it without one."
    )


def test_the_same_path_is_said_once():
    same = [(0, "compute", None, 50), (1, "compute", None, 45), (1, "comm", None, 5)]
    said = path.sentence(_captured("a", *same), _captured("b", *same))
    assert said == ("The same binds both: compute (95 % of the critical path in a, 95 % of the critical path in b).")


def test_without_a_path_nothing_is_concluded():
    assert path.sentence(capture(steady(90, 10)), _captured("b", (0, "compute", None, 1))) is None
