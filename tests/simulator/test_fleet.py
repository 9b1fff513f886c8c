"""A fault of a set of ranks is said of that set, in the first line."""

import pytest

import traceanalyzer as ta
from tests.simulator import fleet
from traceanalyzer.job.run_info import read_hosts

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
    found = [item for item in ta.find(ta.load(tmp_path), hosts=hosts) if item.ranks and not item.is_nothing]
    if not truth.ranks:
        assert found == []
        return
    assert [words for words in truth.says if words not in found[0].headline] == []
    assert (found[0].ranks, found[0].cause) == (truth.ranks, truth.cause)
    assert len(found) == 1, "nobody else is blamed"


OTHERS = [
    ("data", "rack"),
    pytest.param("sharded", "rank", marks=pytest.mark.thorough),  # one late rank: the scoreboard has many
    ("tensor", "nvlink"),
    pytest.param("experts", "half", marks=pytest.mark.thorough),
    pytest.param("pipeline", "half", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize(("parallel", "fault"), OTHERS)
def test_it_is_in_other_kinds_of_jobs(tmp_path, parallel, fault):
    layout = fleet.Layout(1, 2) if fault == "rack" else fleet.Layout(2, 2)  # a rack of eight ranks is no half of them
    truth = fleet.write(tmp_path, 8, fault, 3, layout, parallel, seed=5)
    found = ta.find(ta.load(tmp_path), hosts=read_hosts(tmp_path / "hosts.csv"))
    assert found[0].kind == truth.kind
    assert [words for words in truth.says if words not in found[0].headline] == []
    assert [each.kind for each in found if not each.is_nothing].count("straggler") == (truth.kind == "straggler")
