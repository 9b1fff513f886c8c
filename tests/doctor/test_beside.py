"""A run's topology and NCCL log beside its traces: paths, transports, the peak of the links."""

import json

import pytest

from tests.doctor.builders import SYS_TOPOLOGY, log
from tests.samples import SAMPLES, sample
from traceanalyzer.analyses import run
from traceanalyzer.cli import run as command
from traceanalyzer.doctor import parse_topology, read_logs
from traceanalyzer.doctor.inputs import texts_beside
from traceanalyzer.doctor.rules import wiring
from traceanalyzer.job.run_info import Wiring

NVLINK = (SAMPLES / "doctor" / "topo_2xH200_nvlink.txt").read_text()


def of(topology, via="P2P/CUMEM", **more):
    return wiring(parse_topology(topology), read_logs([("log", log(via=via, **more))]))


def test_ranks_are_those_of_the_log():
    found = of(NVLINK)
    assert (found.path([0, 1]), found.transport([0, 1])) == ("NV18", "P2P/CUMEM")
    assert found.path([0]) is None


def test_ranks_of_two_machines_are_joined_by_the_network():
    found = of(NVLINK, via="NET/IB/0", ranks=4, hosts=2)
    assert (found.path([0, 1]), found.path([0, 1, 2])) == ("NV18", "network")


def test_without_a_log_gpus_are_those_of_the_trace():
    ranks = sample("ddp").ranks
    found = run(ranks, ["groups"], wiring=Wiring({(0, 1): "NV18"}))["groups"].rows()
    assert [(row["path"], row["transport"]) for row in found] == [("NV18", None)]
    alike = [ranks[0], ranks[0].renumbered(1, "test")]
    (row,) = run(alike, ["groups"], wiring=Wiring({(0, 1): "NV18"}))["groups"].rows()
    assert row["path"] is None, "both have GPU 0: they may be on two machines"


@pytest.mark.parametrize(
    ("topology", "peak"), [(NVLINK, 450), (NVLINK.replace("NV18", "NV4"), 100), (SYS_TOPOLOGY, None)]
)
def test_the_peak_is_that_of_the_path(topology, peak):
    results = run(sample("ddp").ranks, ["collectives"], wiring=of(topology))
    assert {row["link_peak_gbps"] for row in results["collectives"].rows()} == {peak}


def test_texts_beside_traces_are_found_by_what_stands_in_them(tmp_path):
    (tmp_path / "a.txt").write_text("loss 3.1\n")
    (tmp_path / "b.txt").write_text(SYS_TOPOLOGY)
    (tmp_path / "c.log").write_text(log())
    (tmp_path / "d.log").write_bytes(b"\0NCCL INFO")
    assert texts_beside(tmp_path) == (tmp_path / "b.txt", [tmp_path / "c.log"])


def test_the_report_has_them(tmp_path, capsys):
    for name in ("rank0.json.gz", "rank1.json.gz"):
        (tmp_path / name).symlink_to(SAMPLES / "ddp" / name)
    (tmp_path / "nccl.log").write_text(log(environment=[("NCCL_P2P_DISABLE", "1")], via="SHM/direct/direct"))
    (tmp_path / "topo.txt").write_text(NVLINK)
    out = tmp_path / "out"
    assert command([str(tmp_path), "-o", str(out), "--format", "json", "--follow-links"]) == 0
    assert "P2P is switched off" in " ".join(capsys.readouterr().out.split())
    content = json.loads((out / "summary.json").read_text())
    assert {row["transport"] for row in content["results"]["collectives"]} == {"SHM/direct/direct"}
    assert (out / "doctor.html").is_file()
