"""A fault of a set of ranks is said of that set, in the first line."""

import pytest
from traceanalyzer.findings.stragglers.stragglers import late_ranks
from traceanalyzer.findings.uneven_stages import uneven_alike

import traceanalyzer as ta
from tests.findings.needed import needed_by
from tests.simulator import fleet
from tests.simulator.analysed import analysed
from traceanalyzer.job.run_info import read_hosts

NEEDED = needed_by(late_ranks)

ALWAYS = [(24, "node")]
THOROUGH = [
    pytest.param(ranks, fault, marks=pytest.mark.thorough)
    for ranks in (24, 256, 1024) for fault in fleet.FAULTS if (ranks, fault) not in ALWAYS
]  # fmt: skip


@pytest.mark.parametrize(("ranks", "fault"), [*ALWAYS, *THOROUGH])
def test_the_set_is_named(tmp_path, ranks, fault):
    small = {"layout": fleet.SMALL, "steps": 3} if ranks < 256 else {}
    truth = fleet.write(tmp_path, ranks, fault, **small)
    hosts = read_hosts(tmp_path / "hosts.csv")
    found = late_ranks(**ta.analyse(ta.load(tmp_path), *NEEDED, hosts=hosts))
    if not truth.ranks:
        assert found == []
        return
    assert [words for words in truth.says if words not in found[0].title] == []
    assert (found[0].ranks, found[0].cause) == (truth.ranks, truth.cause)
    assert len(found) == 1, "nobody else is blamed"


OTHERS = [
    ("data", "rack"),
    pytest.param("sharded", "rank", marks=pytest.mark.thorough),  # one late rank: the scoreboard has many
    ("tensor", "nvlink"),
    pytest.param("experts", "half", marks=pytest.mark.thorough),
    ("pipeline", "half"),
]


@pytest.mark.parametrize(("parallel", "fault"), OTHERS)
def test_it_is_in_other_kinds_of_jobs(tmp_path, parallel, fault):
    layout = fleet.Layout(1, 2) if fault == "rack" else fleet.Layout(2, 2)  # a rack of eight ranks is no half of them
    truth = fleet.write(tmp_path, 8, fault, 3, layout, parallel, seed=5)
    found = ta.find(ta.load(tmp_path), hosts=read_hosts(tmp_path / "hosts.csv"))
    assert found[0].rule == truth.rule
    assert [words for words in truth.says if words not in found[0].title] == []
    assert [each.rule for each in found].count("late_ranks") == (truth.rule == "late_ranks")


def test_replicas_of_a_pipeline_are_judged_together():
    """Each pipeline's stages are a little more or less uneven by chance: all are spoken of, or none."""
    _, results = analysed(fleet.job(8, "half", 3, fleet.Layout(2, 2), "pipeline"), "pipelines", "pipeline")
    times = results["pipelines"].to_frame()["compute_max_over_mean"]
    frame = results["pipeline"].to_frame()
    for least in (float(times.median()), float(times.max())):
        assert times.min() < least
        assert [len(rows) for rows in uneven_alike(results["pipelines"], frame, least)] == [len(times)]
    assert uneven_alike(results["pipelines"], frame, times.max() + 0.001) == []
