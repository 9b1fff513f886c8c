"""The concluding sentence of a comparison: which path bound the step before, and which binds it now."""

import pandas as pd
import pytest

from tests.diff.captured import capture, steady
from traceanalyzer.report.comparison import step_parts


def _captured(label, *rows):
    held = capture(steady(90, 10))
    table = pd.DataFrame(rows, columns=["rank", "category", "name", "path_ns"])
    return type(held)(label, held.source, {"critical_path": table}, held.steps, held.is_exact)


def test_the_path_before_and_the_path_now_are_named_by_rank_and_operator():
    before = _captured("before", (0, "host", "forward", 20), (1, "compute", "aten::mm", 80))
    after = _captured("after", (0, "host", "forward", 60), (1, "compute", "aten::mm", 40))
    said = step_parts.path_sentence(before, after)
    assert said == (
        "before was bound by rank 1's compute, most of it aten::mm (80 % of the critical path); "
        "after is by rank 0's host (60 % of the critical path). Hosts are slower under a profiler: time it without one."
    )


def test_the_same_path_is_said_once():
    same = [(0, "compute", None, 50), (1, "compute", None, 45), (1, "comm", None, 5)]
    said = step_parts.path_sentence(_captured("a", *same), _captured("b", *same))
    assert said == ("The same binds both: compute (95 % of the critical path in a, 95 % of the critical path in b).")


def test_without_a_path_nothing_is_concluded():
    assert step_parts.path_sentence(capture(steady(90, 10)), _captured("b", (0, "compute", None, 1))) is None


def _with(held, **tables):
    return type(held)(held.label, held.source, held.tables | tables, held.steps, held.is_exact)


def _what_ifs(*rows):
    columns = ["option", "before_ns", "gain_ns", "unprofiled_ns", "unprofiled_gain_ns"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:], "Int64"))


@pytest.mark.parametrize(
    ("gain_ns", "unprofiled_ns", "unprofiled_gain_ns", "said"),
    [
        (40, 90, 8, "work on the GPUs (hosts that take no time would shorten a step by 8.9 %)"),
        (8, None, None, "work on the GPUs (hosts that take no time would shorten a step by 8.0 %)"),
        (40, 90, 30, "hosts' work (100 % of the critical path)"),
    ],
)
def test_hosts_on_the_path_bind_where_a_step_without_their_time_is_shorter(
    gain_ns, unprofiled_ns, unprofiled_gain_ns, said
):
    hosts = _captured("after", (0, "host", None, 50), (1, "host", None, 50))
    now = _with(hosts, what_ifs=_what_ifs(("--host none", 100, gain_ns, unprofiled_ns, unprofiled_gain_ns)))
    assert f"after is by {said}." in step_parts.path_sentence(_captured("before", (0, "data", None, 1)), now)


@pytest.mark.parametrize(("gain_ns", "said"), [(30, "rank 1's loading of data"), (2, "loading of data")])
def test_a_rank_is_named_where_as_fast_as_its_peers_it_would_shorten_the_step(gain_ns, said):
    """The path of a capture of two ranks lies on one of them, whether that is later or not."""
    one = _captured("a", (1, "data", None, 50))
    gained = _what_ifs(("--rank 1=peers", 100, gain_ns, None, None))
    own = _with(one, what_ifs=gained, breakdown=pd.DataFrame({"rank": [0, 1]}))
    assert step_parts.bound_of(own).words == said


@pytest.mark.parametrize(("unmatched_ns", "is_told"), [(2, True), (40, False)])
def test_where_waits_stay_as_they_were_the_gpus_do_not_bind(unmatched_ns, is_told):
    hosts = _captured("after", (0, "host", None, 50), (1, "host", None, 50))
    what_ifs = _what_ifs(("--host none", 100, 0, None, None)).assign(unmatched_ns=unmatched_ns)
    said = step_parts.path_sentence(_captured("before", (0, "data", None, 1)), _with(hosts, what_ifs=what_ifs))
    assert (said is not None) == is_told
