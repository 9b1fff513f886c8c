"""A fault of a set of ranks is said of that set, in the first line."""

import pytest

import traceanalyzer as ta
from tests.simulator import fleet
from traceanalyzer.findings.late.lateness import late_ranks
from traceanalyzer.job.hosts import read_hosts

NEEDED = ("episodes", "step_needs", "expert_layers", "even_experts", "replay", "operators", "host_work")

ALWAYS = [(24, "node"), (24, "nvlink")]
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
