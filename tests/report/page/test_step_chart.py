import pytest

from tests import once
from traceanalyzer.report.charts import step_chart


@pytest.fixture(scope="module")
def results():
    return once.results("ddp")


def test_a_steps_parts_add_up_to_its_window(results):
    made = step_chart(results)
    table = results["steps"].table
    for rank, steps in made["ranks"].items():
        own = table[(table["rank"] == int(rank)) & table["step"].notna()].set_index("step")["window_ns"]
        assert [sum(parts) for parts in steps] == [int(own[step]) for step in made["steps"]]
    assert made["complete"] == [True, True, True]
    assert all(least <= sum(mean) <= most + 5 for least, mean, most in
               zip(made["least"], made["mean"], made["most"], strict=True))  # fmt: skip
