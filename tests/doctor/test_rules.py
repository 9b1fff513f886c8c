"""What the doctor says of cases whose truth is known."""

import json

import pytest

from tests.doctor.builders import SYS_TOPOLOGY, dump, entry, log, write_dumps
from tests.samples import SAMPLES
from traceanalyzer.doctor import examine
from traceanalyzer.doctor.examination import RULES as ALL_RULES
from traceanalyzer.doctor.knowledge import KNOWLEDGE

FOLDER = SAMPLES / "doctor"
NVLINK = (FOLDER / "topo_2xH200_nvlink.txt").read_text()


def said(topo=None, *logs):
    texts = [(f"{number}.log", text) for number, text in enumerate(logs)]
    found = examine(topo=None if topo is None else ("topo.txt", topo), nccl_logs=texts)
    return {one.rule: one for one in found.diagnoses}


@pytest.mark.parametrize(("ends", "is_suspected"), [("connecting", True), ("connected", True), ("closed", False)])
def test_p2p_over_sys_that_stops(ends, is_suspected):
    found = said(SYS_TOPOLOGY, log(ends=ends))
    assert ("suspected_p2p_failure" in found) == is_suspected
    assert "GPU0: NIC2 (mlx5_bond_0) at NODE; GPU1: NIC0 (mlx5_0) at PIX" in found["topology_in_words"].diagnosis
    assert "the matrix does not show its ports" in found["topology_in_words"].caveat
    if is_suspected:
        one = found["suspected_p2p_failure"]
        assert one.severity == "high"
        assert "GPU0-GPU1 joined by SYS only; 4 connections via P2P/CUMEM" in one.signal
        for word in ("NCCL_P2P_DISABLE=1", "ACS", "IOMMU"):
            assert word in one.recommendation
        assert "pre-emptively" in one.caveat


def test_a_stall_over_nvlink_is_no_p2p_suspicion():
    assert "suspected_p2p_failure" not in said(NVLINK, log(ends="connecting"))


def test_healthy_is_said():
    found = examine(topo=FOLDER / "topo_2xH200_nvlink.txt", nccl_logs=[FOLDER / "nccl_plain.log"])
    assert {one.severity for one in found.diagnoses} == {"info"}
    assert found.verdict[0] == "No problem found in these inputs."
    assert "harmless on one node" in said(NVLINK, (FOLDER / "nccl_plain.log").read_text())["log_in_words"].diagnosis


def test_p2p_off_says_what_changed_and_what_it_costs():
    found = said(NVLINK, (FOLDER / "nccl_plain.log").read_text(), (FOLDER / "nccl_no_p2p.log").read_text())
    told = found["p2p_off"].diagnosis
    assert "shared memory (SHM)" in told
    assert "18 NVLinks" in told
    assert "450 GB/s" in told
    assert "nvlink_unused" not in found


RULES = [
    ("nvlink_unused", NVLINK, {"via": "SHM/direct/direct", "ends": "closed"}, {"ends": "closed", "channels": 24}),
    ("few_channels", NVLINK, {"channels": 2, "ends": "closed"}, {"channels": 16, "ends": "closed"}),
    ("shm_off", None, {"environment": [("NCCL_SHM_DISABLE", "1")]}, {"environment": [("NCCL_SHM_DISABLE", "0")]}),
    ("sockets_across_nodes", None, {"hosts": 2, "via": "NET/Socket/0"}, {"via": "NET/Socket/0"}),
    ("no_gpudirect", None, {"hosts": 2, "via": "NET/IB/0"}, {"hosts": 2, "via": "NET/IB/0/GDRDMA"}),
    ("mixed_versions", None, {"version": ("2.18.1", "2.21.5")}, {"version": ("2.21.5", "2.21.5")}),
    ("init_incomplete", None, {"ranks": 4, "incomplete": (0, 1, 3), "absent": (2,)}, {"ranks": 4}),
    ("settings", None, {"environment": [("NCCL_ALGO", "Ring")]}, {"environment": [("NCCL_DEBUG", "INFO")]}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "topo", "sick", "well"), RULES, ids=[row[0] for row in RULES])
def test_rules_speak_and_are_silent(rule, topo, sick, well):
    assert rule in said(topo, log(**sick))
    assert rule not in said(topo, log(**well))


def test_dumps_of_different_versions(tmp_path):
    calls = [entry(1)]
    dumps = {
        rank: {**dump(calls, range(3)), "comm_lib_version": "2.21.5" if rank == 2 else "2.28.9"} for rank in range(3)
    }
    found = {one.rule: one for one in examine(flight_recorder=write_dumps(tmp_path / "dumps", dumps)).diagnoses}
    assert found["mixed_versions"].ranks == (2,)
    assert found["mixed_versions"].signal == "2.28.9 on ranks 0 and 1; 2.21.5 on rank 2."
    alike = {rank: dump(calls, range(3)) for rank in range(3)}
    told = examine(flight_recorder=write_dumps(tmp_path / "alike", alike)).diagnoses
    assert "mixed_versions" not in {one.rule for one in told}


def test_init_names_the_ranks_that_never_began():
    one = said(None, log(ranks=4, incomplete=(0, 1, 3), absent=(2,)))["init_incomplete"]
    assert one.ranks == (2,)
    assert "Rank 2 of 4 never began" in one.diagnosis


def test_rank_that_never_came():
    found = examine(flight_recorder=FOLDER / "rank1_never_came")
    (one,) = [one for one in found.diagnoses if one.severity == "high"]
    assert one.ranks == (1,)
    assert one.diagnosis.startswith(
        "Rank 1 never called all-reduce number 6 of process group default_pg (0) since 2026-11-21 01:33:46 UTC"
    )
    assert "odd.py:66" in one.diagnosis
    assert "rank 1 last called all-reduce number 5 (completed)" in one.signal


def test_a_rank_that_recorded_nothing(tmp_path):
    dumps = {0: dump([], range(2)), 1: dump([entry(1, state="started")], range(2))}
    one = examine(flight_recorder=write_dumps(tmp_path / "dumps", dumps)).diagnoses[0]
    assert (one.rule, one.ranks) == ("rank_never_came", (0,))
    assert one.signal.endswith("(limit 600 s); rank 0 recorded no collective in this group.")


def test_ras_of_ranks_out_of_step():
    text = """NCCL version 2.26.2 compiled with CUDA 12.6
Job summary
===========
Communicators... (0.00s)
=============

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 1 on node 192.0.2.1
  Rank 13 -- GPU 5 managed by process 2 on node 192.0.2.1
"""
    one = said(None, text)["ras_troubles"]
    assert one.ranks == (12, 13)
    assert "30 launched AllGather operation 640 at most, 2 operation 641" in one.diagnosis
    lone = text.replace("  2 ranks have", "  Rank 12 has").replace("  Rank 12 --", "").replace("  Rank 13 --", "")
    assert "30 launched AllGather operation 640 at most, 1 operation 641" in said(None, lone)["ras_troubles"].diagnosis
    none = text.replace("2 ranks have launched up to operation 641", "2 ranks have not launched any operations")
    assert "2 launched AllGather operation 0 at most, 30 operation 640" in said(None, none)["ras_troubles"].diagnosis


def test_ras_as_json():
    """Of three ranks, as `ncclras -f json` lays them out (src/ras/client_support.cc, NCCL 2.30): one lags, one is lost."""
    ranks = [{"rank": rank, "host": "192.0.2.1", "pid": rank, "cuda_dev": rank, "nvml_dev": rank, "status": {"init_state": 0},
              "collective_counts": {"Broadcast": 0, "AllReduce": 5 if rank == 1 else 6}} for rank in range(3)]  # fmt: skip
    lost = [{"rank": 3, "host": "unknown", "pid": -1, "cuda_dev": 3, "nvml_dev": 3, "status": {"unresponsive": True}}]
    own = {
        "hash": "0xfa93",
        "size": 4,
        "ranks_count": 3,
        "missing_ranks_count": 1,
        "ranks": ranks,
        "missing_ranks": lost,
    }
    text = json.dumps({"nccl_version": "2.30.7", "communicators_count": 1, "communicators": [own]}, indent=2)
    found = [one for one in examine(nccl_logs=[("ras.json", text)]).diagnoses if one.rule == "ras_troubles"]
    assert [one.ranks for one in found] == [(3,), (1,)]
    assert "no data from rank 3 of communicator 0xfa93" in found[0].diagnosis
    assert "1 launched AllReduce operation 5 at most, 2 operation 6" in found[1].diagnosis


def test_words_are_of_one_rule_each():
    assert [rule.__name__ for rule in ALL_RULES] == list(KNOWLEDGE.rules)


@pytest.mark.parametrize("what", ["open_everywhere", "ranks_without_dump", "recorder_in_words"])
def test_other_states_of_the_recorder(tmp_path, what):
    state = "completed" if what == "recorder_in_words" else "started"
    ranks = (0, 1, 2) if what == "ranks_without_dump" else (0, 1)
    folder = write_dumps(tmp_path / "dumps", {rank: dump([entry(1), entry(2, state=state)], ranks) for rank in (0, 1)})
    assert what in {one.rule for one in examine(flight_recorder=folder).diagnoses}


@pytest.mark.parametrize(("other", "said"), [
    (None, "rank 5 has no open send for it"),
    ("nccl:send 0->1", "rank 5 has called its half too"),
])  # fmt: skip
def test_a_receive_that_waits(tmp_path, other, said):
    """Ranks count in their group: its second rank is 7."""
    recv = entry(0, "nccl:recv 1<-0", "started", p2p_seq_id=4, is_p2p=True, group=("pp", "pp"))
    send = (
        []
        if other is None
        else [
            entry(
                0,
                other,
                "started",
                p2p_seq_id=4,
                is_p2p=True,
                group=("pp", "pp"),
                time_created_ns=1_800_000_000_000_000_000,
            )
        ]
    )
    dumps = {
        5: dump([entry(1, group=("pp", "pp")), *send], (5, 7), "pp", "pp"),
        7: dump([entry(1, group=("pp", "pp")), recv], (5, 7), "pp", "pp"),
    }
    found = examine(flight_recorder=write_dumps(tmp_path / "dumps", dumps))
    (one,) = [one for one in found.diagnoses if one.rule == "open_send_recv"]
    assert one.diagnosis.startswith("Rank 7 waits in a receive from rank 5 of process group pp (pp) since")
    assert said in one.diagnosis
