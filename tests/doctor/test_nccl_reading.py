"""NCCL logs of several versions, ranks and jobs."""

import pytest

from tests.doctor.builders import log
from tests.samples import SAMPLES
from traceanalyzer.doctor import read_logs
from traceanalyzer.errors import InputError


def sample(name):
    return name, (SAMPLES / "doctor" / name).read_text()


def test_two_jobs_are_kept_apart():
    plain, without = sorted(
        read_logs([sample("nccl_plain.log"), sample("nccl_no_p2p.log")]), key=lambda one: one.names, reverse=True
    )
    assert (plain.kinds(), without.kinds()) == ({"P2P": 48}, {"SHM": 8})
    assert (plain.coll_channels(), without.coll_channels()) == (24, 4)
    assert (plain.set_to("NCCL_P2P_DISABLE"), without.set_to("NCCL_P2P_DISABLE")) == (None, "1")
    assert set(plain.facts["nccl"].values()) == {"2.28.9+cuda13.0"}
    assert [(one.rank, one.gpu, one.init_s, one.closed_by) for one in plain.members] == [
        (0, 0, 0.26, "Destroy"),
        (1, 1, 0.26, "Destroy"),
    ]


def test_files_of_one_job_are_put_together():
    text = log(ends="closed").splitlines()
    files = [
        ("a.log", "\n".join(line for line in text if ":100:" in line)),
        ("b.log", "\n".join(line for line in text if ":101:" in line)),
    ]
    (found,) = read_logs(files)
    assert (found.names, sorted(one.rank for one in found.members), found.world) == (("a.log", "b.log"), [0, 1], 2)


@pytest.mark.parametrize(
    "prefix", ["", "[rank{rank}]:", "[default{rank}]:", "2026-01-02 03:04:05 ", "[2026-01-02 03:04:05] ", "\x1b[32m"]
)
def test_prefixes_of_launchers(prefix):
    (found,) = read_logs([("log", log(prefix=prefix, ends="closed"))])
    assert (len(found.members), found.kinds(), found.hosts) == (2, {"P2P": 4}, ("node0",))


def test_lines_that_ran_into_each_other():
    one, other = (
        "n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
        "n:2:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via SHM",
    )
    (found,) = read_logs([("log", one + other)])
    assert [(link.process, link.transport) for link in found.links] == [(("n", 1), "P2P/IPC"), (("n", 2), "SHM")]


def test_version_2_14_names_the_communicator_last():
    text = """NCCL version 2.14.3+cuda11.7
gpu:11:40 [0] NCCL INFO Channel 00 : 0[1000] -> 1[2000] via P2P/IPC/read
gpu:11:40 [0] NCCL INFO Channel 00 : 0[1000] -> 1[2000] via direct shared memory
gpu:11:40 [0] NCCL INFO Connected all rings
gpu:11:40 [0] NCCL INFO 2 coll channels, 2 p2p channels, 2 p2p channels per peer
gpu:11:40 [0] NCCL INFO comm 0x7f00 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE
"""
    (found,) = read_logs([("log", text)])
    (member,) = found.members
    assert (set(found.facts["nccl"].values()), member.is_complete, "Init START" in member.events) == (
        {"2.14.3+cuda11.7"},
        True,
        False,
    )
    assert [link.kind for link in found.links] == ["P2P", "SHM"]
    assert {link.communicator for link in found.links} == {member.communicator}


def test_network_transports():
    text = """a:1:9 [4] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
a:1:9 [4] NCCL INFO Channel 01/0 : 13[5] -> 4[4] [receive] via NET/IB/0/GDRDMA
a:1:9 [4] NCCL INFO Channel 02/0 : 4[4] -> 13[5] [send] via NET/Socket/3
a:1:9 [4] NCCL INFO Channel 03/0 : 4[4] -> 13[5] [send] via NET/AWS Libfabric/0/GDRDMA
a:1:9 [4] transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : port error
a:1:9 [4] NCCL INFO AllReduce: 4194304 Bytes -> Algo 1 proto 2 time 33.4
"""
    (found,) = read_logs([("log", text)])
    assert [(link.kind, link.is_direct) for link in found.links] == [
        ("NET/IB", True),
        ("NET/Socket", False),
        ("NET/AWS Libfabric", True),
    ]
    assert found.ib_devices == ["mlx5_0 (IB), mlx5_1 (RoCE)"]
    assert found.warnings == {"NET/IB : Got async event : port error": [("a", 1)]}
    assert found.algorithms == {("AllReduce", "RING", "SIMPLE"): 1}


def test_a_text_without_nccl_is_refused():
    with pytest.raises(InputError, match="NCCL_DEBUG=INFO"):
        read_logs([("log", "hello\nworld")])


def test_a_communicator_of_more_ranks_than_there_can_be_is_damage():
    """Who is absent was looked for among 299,999,999."""
    line = "node0:100:100 [0] NCCL INFO ncclCommInitRank comm 0x100 rank 0 nranks {} cudaDev 0 busId 0 commId 0xabc - Init START\n"
    text = "node0:100:100 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n" + line
    sizes = [
        [member.size for member in read_logs([("a.log", text.format(size))])[0].members] for size in (8, "2" + "9" * 12)
    ]
    assert sizes == [[8], []]
