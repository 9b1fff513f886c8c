import pytest

from tests import once
from traceanalyzer.report.build import build, with_results
from traceanalyzer.report.page import charts
from traceanalyzer.report.page.charts import step_chart
from traceanalyzer.scale import Summary


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


def test_of_many_ranks_only_those_on_top_are_carried(results, monkeypatch):
    monkeypatch.setattr(charts, "MOST_CELLS", 3)
    made = step_chart(results, [1])
    assert list(made["ranks"]) == ["1"]
    assert made["left_out"] == 1


def _says(worth_pct):
    """Of what is said with this limit: the chart's late ranks, those of the findings, and causes that point at them."""
    limits = {} if worth_pct is None else {"late_gain_pct": worth_pct}
    first = build(Summary(once.results("ddp_straggler"), (), (), {}), "job", **limits)
    report = with_results(first, once.results("ddp_straggler"), ())  # Results that are made afterwards change nothing
    found = [each for finding in report.findings for each in (finding, *finding.also)]
    late = {finding.ranks for finding in found if finding.rule == "late_ranks"}
    behind = {finding.part_of for finding in found if "lateness" in (finding.part_of or "")}
    return {row["ranks"] for row in step_chart(report.results)["late"]}, late, behind


def test_chart_findings_and_what_points_at_them_follow_one_limit_of_late_ranks():
    chart, late, behind = _says(None)
    assert (chart, late) == ({"1"}, {(1,)})
    assert behind
    assert _says(1000.0) == (set(), set(), set())
