"""Hosts that are slower at everything: what is then no name for why they are late."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.host_paces import without_names_of_pace
from traceanalyzer.analyses.host.host_activity import NOTHING

MS = 1_000_000


def operators(pace, *, calls=100):
    rows = [(0, "aten::mm", 100, 40 * MS), (0, "aten::add", 100, 20 * MS)]
    rows += [(1, name, calls, round(pace * own)) for _, name, _, own in rows]
    return pd.DataFrame(rows, columns=["rank", "operator", "calls", "host_self_ns"])


@pytest.mark.parametrize(
    ("name", "pace", "excess_ms", "calls", "stays"),
    [
        (NOTHING, 1.3, 20, 100, False),
        ("Optimizer.step#AdamW.step", 1.3, 20, 100, False),
        ("aten::mm", 1.3, 20, 100, False),
        ("gc.collect", 1.3, 20, 100, True),
        (NOTHING, 1.0, 20, 100, True),
        (NOTHING, 1.3, 50, 100, True),
        (NOTHING, 1.3, 20, 130, True),
    ],
    ids=[
        "nothing recorded",
        "the framework's",
        "an operator",
        "a thing by itself",
        "no slower",
        "longer than that",
        "other work",
    ],
)
def test_of_a_host_that_is_slower_throughout_only_what_is_longer_by_itself_is_a_name(
    name, pace, excess_ms, calls, stays
):
    cells = pd.DataFrame(
        {"rank": 1, "step": [3], "part": "host_ns", "excess_ns": excess_ms * MS, "what": "doing", "name": name}
    )
    late = pd.DataFrame({"rank": [0, 1], "step": 3, "needed_host_ns": [60 * MS, 80 * MS]}).astype(
        {"needed_host_ns": "Int64"}
    )
    (found,) = without_names_of_pace(cells, late, operators(pace, calls=calls))["name"]
    assert found == name if stays else pd.isna(found)


@pytest.mark.parametrize(("longer_ms", "stays"), [(5, False), (30, True)])
def test_an_operator_that_takes_hardly_longer_is_no_name(longer_ms, stays):
    cells = pd.DataFrame(
        {"rank": 1, "step": [3], "part": "host_ns", "excess_ns": 50 * MS, "what": "doing", "name": "aten::stack"}
    )
    late = pd.DataFrame({"rank": [0, 1], "step": 3, "needed_host_ns": [60 * MS, 110 * MS]}).astype(
        {"needed_host_ns": "Int64"}
    )
    rows = [(0, "aten::stack", 9, 10 * MS), (1, "aten::stack", 9, (10 + longer_ms) * MS)]
    stack = pd.DataFrame(rows, columns=["rank", "operator", "calls", "host_self_ns"])
    (found,) = without_names_of_pace(cells, late, pd.concat([operators(1.0), stack]))["name"]
    assert found == "aten::stack" if stays else pd.isna(found)


@pytest.mark.parametrize(("others", "stays"), [((), False), ((0,), True)], ids=["alone", "in turn"])
def test_that_it_takes_hardly_longer_is_told_of_some_steps_where_no_other_host_is_late_in_others(others, stays):
    rows = [(1, 0), *((rank, 2) for rank in others)]
    cells = pd.DataFrame(rows, columns=["rank", "step"]).assign(
        part="host_ns", excess_ns=50 * MS, what="doing", name="aten::mm"
    )
    late = pd.DataFrame([(rank, step, 60 * MS) for rank in (0, 1) for step in range(4)])
    late = late.set_axis(["rank", "step", "needed_host_ns"], axis=1).astype({"needed_host_ns": "Int64"})
    names = without_names_of_pace(cells, late, operators(1.0))["name"]
    assert names.notna().tolist() == [stays] * len(rows)


@pytest.mark.parametrize(("steps", "own_ms", "stays"), [(1, 0, False), (2, 0, True), (1, 200, True)],
                         ids=["all steps", "half of the steps", "most is other work"])  # fmt: skip
def test_a_pace_is_there_in_all_steps_and_known_by_most_of_what_a_host_does(steps, own_ms, stays):
    cells = pd.DataFrame(
        {"rank": 1, "step": [0], "part": "host_ns", "excess_ns": 20 * MS, "what": "doing", "name": NOTHING}
    )
    rows = [(rank, step, needed) for step in range(steps) for rank, needed in ((0, 60 * MS), (1, 80 * MS))]
    late = pd.DataFrame(rows, columns=["rank", "step", "needed_host_ns"]).astype({"needed_host_ns": "Int64"})
    other = pd.DataFrame([(1, "aten::uniform_", 3, own_ms * MS)], columns=["rank", "operator", "calls", "host_self_ns"])
    (found,) = without_names_of_pace(cells, late, pd.concat([operators(1.3), other]))["name"]
    assert found == NOTHING if stays else pd.isna(found)


@pytest.mark.parametrize(("needed_ms", "stays"), [(80, False), (120, True)])
def test_a_range_of_a_slow_host_holds_its_slow_calls_where_it_needs_no_more(needed_ms, stays):
    cells = pd.DataFrame(
        {"rank": 1, "step": [0, 1, 2], "part": "host_ns", "excess_ns": [30 * MS, 20 * MS, 20 * MS],
         "what": ["range", "doing", "doing"], "name": ["mixup", "aten::mm", "aten::mm"]}
    )  # fmt: skip
    rows = [(0, step, 60 * MS) for step in range(3)]
    rows += [(1, step, (80 if step else needed_ms) * MS) for step in range(3)]
    late = pd.DataFrame(rows, columns=["rank", "step", "needed_host_ns"]).astype({"needed_host_ns": "Int64"})
    names = without_names_of_pace(cells, late, operators(2.0))["name"]
    assert names.isna().tolist() == [not stays, True, True]


@pytest.mark.parametrize(("pace", "stays"), [(1.3, False), (1.0, True)], ids=["as slow", "not slow"])
def test_what_is_another_hosts_pace_is_no_name_for_one_that_is_as_slow_and_mostly_hidden(pace, stays):
    """Rank 1 is late in all steps by its pace, rank 2 is seen to be late in one of them."""
    cells = pd.DataFrame([(1, step) for step in range(4)] + [(2, 1)], columns=["rank", "step"]).assign(
        part="host_ns", excess_ns=20 * MS, what="doing", name=NOTHING
    )
    late = pd.DataFrame([(rank, step, 80 * MS) for rank in range(4) for step in range(4)])
    late = late.set_axis(["rank", "step", "needed_host_ns"], axis=1).astype({"needed_host_ns": "Int64"})
    table = pd.concat([operators(1.3), *(operators(own)[2:].assign(rank=rank) for rank, own in ((2, pace), (3, 1.0)))])
    names = without_names_of_pace(cells, late, table)["name"]
    assert names.notna().tolist() == [False] * 4 + [stays]
