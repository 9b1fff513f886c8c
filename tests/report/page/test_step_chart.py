import pytest

from tests import once
from traceanalyzer.report.page import step_chart as module
from traceanalyzer.report.page.step_chart import step_chart


@pytest.fixture(scope="module")
def results():
    return once.results("ddp")


def test_a_steps_parts_add_up_to_its_window(results):
    made = step_chart(results)
    table = results["steps"].table
    for rank, steps in made["ranks"].items():
        own = table[(table["rank"] == int(rank)) & table["step"].notna()].set_index("step")["window_ns"]
        assert [sum(parts) for parts in steps] == [int(own[step]) for step in made["steps"]]
    assert made["complete"] == [True, True, False]
    assert all(least <= sum(mean) <= most + 5 for least, mean, most in
               zip(made["least"], made["mean"], made["most"], strict=True))  # fmt: skip


def test_of_many_ranks_only_those_on_top_are_carried(results, monkeypatch):
    monkeypatch.setattr(module, "MOST_CELLS", 3)
    made = step_chart(results, [1])
    assert list(made["ranks"]) == ["1"]
    assert made["left_out"] == 1
