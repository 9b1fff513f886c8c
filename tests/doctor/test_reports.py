"""Situations that people report: the first diagnosis of a log written as the program writes it is the right one."""

import pickle

import pytest

from tests.doctor.builders import dump, entry, log, write_dumps
from traceanalyzer.cli import run
from traceanalyzer.doctor import examine
from traceanalyzer.report import examination

GLOBAL = "[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"


def first(*texts, topo=None):
    given = [(f"{number}.log", text) for number, text in enumerate(texts)]
    return examine(topo=topo and ("topo.txt", topo), nccl_logs=given).diagnoses[0]


def timeout(rank, seq, operation="ALLREDUCE", *, limit_ms=600_000, prefix="[rank{rank}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] "):  # fmt: skip
    return (
        f"{prefix.format(rank=rank)}[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
        f"OpType={operation}, NumelIn=8, NumelOut=8, Timeout(ms)={limit_ms}) ran for {limit_ms + 60} milliseconds "
        "before timing out."
    )


def status(rank, group, text, enqueued, completed):
    return (
        f"[rank{rank}]:[E321 02:07:08.5 ProcessGroupNCCL.cpp:1664] {group.format(rank=rank)} {text}last enqueued NCCL "
        f"work: {enqueued}, last completed NCCL work: {completed}."
    )


def dump_signal(rank, by, enqueued, completed):
    return status(rank, GLOBAL, f"Received a dump signal due to a collective timeout from {by} and we will try our best "
                  "to dump the debug info. ", enqueued, completed).replace(" last enq", " Last enq")  # fmt: skip


STATUSES = [
    ("[PG 1 Rank {rank}]", "Exception (either an error or timeout) detected by watchdog at work: 7, "),  # 2.4
    ("[PG 0 (default_pg) Rank {rank}]", "Timeout at NCCL work: 7, "),  # 2.5
    ("[Rank {rank}]", "Timeout at NCCL work: 7, "),  # 2.2
]


@pytest.mark.parametrize(("group", "text"), STATUSES)
def test_the_rank_that_never_reported(group, text):
    lines = [line for rank in (0, 1, 3) for line in (timeout(rank, 7), status(rank, group, text, 9, 6))]
    one = first("\n".join(lines))
    assert (one.rule, one.severity, one.ranks) == ("timeouts", "high", (2,))
    assert "all-reduce 7" in one.diagnosis
    assert "last enqueued 9, last completed 6" in one.signal
    assert "waited over 600 s" in one.signal


def test_ranks_out_of_step_keep_their_own_numbers():
    old = "[E ProcessGroupNCCL.cpp:458] "
    lines = [timeout(0, 96_120, prefix=old), timeout(0, 96_117, prefix=old), timeout(1, 64_087, prefix=old)]
    one = first("\n".join(lines))
    assert one.ranks == (0, 1)
    assert "rank 1 at 64087; rank 0 at 96117" in one.diagnosis
    assert "no process group" in one.caveat


def test_who_is_behind_and_who_asked_for_dumps():
    lines = [
        dump_signal(1, "this local rank", 6, 6),
        dump_signal(0, "this local rank", 6, 6),
        dump_signal(3, " rank 1", 5, 5),
    ]
    one = first("\n".join(lines))
    assert (one.ranks, one.diagnosis[:16]) == ((3,), "Rank 3 is behind")
    assert "Ranks 0 and 1 last enqueued 6, last completed 6; rank 3 last enqueued 5" in one.signal
    assert "Rank 1 requested the dump of rank 3" in one.signal


def test_ranks_past_the_collective_are_not_behind():
    failed = (
        GLOBAL
        + "  failure detected by watchdog at work sequence id: 50 PG status: last enqueued work: 90, last completed work: 49"
    )
    lines = [timeout(2, 50), "[rank2]:[E6 x.cpp:1] " + failed.format(rank=2), dump_signal(0, " rank 2", 89, 49)]
    one = first("\n".join(lines))
    assert "all-reduce 50" in one.diagnosis
    assert "behind" not in one.diagnosis


def test_no_number_of_a_version_that_prints_garbage():
    text = status(2, "[PG 0 Rank {rank}]", "Timeout at NCCL work: 1, ", 1, 76_280_750_235_782_912)
    assert "completed" not in first(text).signal


def test_different_collectives_under_one_number():
    lines = [timeout(rank, 9, "BROADCAST" if rank == 2 else "ALLREDUCE") for rank in range(4)]
    assert "ranks 0, 1 and 3 all-reduce, rank 2 broadcast" in first("\n".join(lines)).diagnosis


def test_the_desync_report():
    text = "\n\t   - [1] joined but didn't finish collective #13 (count from 1)\n\t     [0] finished collective #12, but didn't join collective #13 (count from 1)\n"
    assert first(text + timeout(1, 13)).ranks == (0,)


def test_a_watchdog_that_is_stuck(tmp_path, capsys):
    line = f"[rank7]:[E6 ProcessGroupNCCL.cpp:1743] {GLOBAL.format(rank=7)} ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."
    (tmp_path / "train.log").write_text(line)
    assert run(["doctor", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "A CUDA or NCCL call blocks rank 7 for 480 s" in printed
    for word in ("GIL", "py-spy dump", "Xid"):
        assert word in printed


SUMMARY = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-04-12_03:12:19
  host      : node-a
  rank      : 0 (local_rank: 0)
  exitcode  : -6 (pid: 1001)
  error_file: <N/A>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-04-12_03:12:11
  host      : node-b
  rank      : 11 (local_rank: 3)
  exitcode  : {code} (pid: 1004)
  error_file: <N/A>
"""


@pytest.mark.parametrize(("code", "name"), [(-9, "SIGKILL"), (137, "SIGKILL"), (-11, "SIGSEGV"), (-7, "SIGBUS")])
def test_the_rank_that_was_killed_comes_before_the_timeouts(code, name):
    found = examine(nccl_logs=[("a", SUMMARY.format(code=code) + timeout(0, 840))]).diagnoses
    assert (found[0].rule, found[0].ranks, found[0].severity) == ("dead_ranks", (11,), "high")
    assert name in found[0].diagnosis
    assert "rank 0 follows from it" in found[0].signal
    assert "node-b" in found[0].signal
    assert [(one.rule, one.severity) for one in found[1:2]] == [("timeouts", "medium")]


@pytest.mark.parametrize("line", [
    "E0412 03:12:15.402 980 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 1004) of binary: python",
    "mpirun noticed that process rank 3 with PID 1004 on node node-a exited on signal 9 (Killed).",
    "srun: error: node-a: task 3: Out Of Memory",
])  # fmt: skip
def test_what_launchers_say_of_a_killed_process(line):
    one = first(line)
    assert one.rule == "dead_ranks"
    assert "rank 3 was killed by SIGKILL" in one.diagnosis.replace("Rank", "rank")


def test_a_process_that_the_watchdog_itself_ended_is_no_cause():
    assert first(SUMMARY.format(code=-6) + timeout(0, 840)).rule == "timeouts"


HEAD = "node-a:100:120 [3] "
KNOWN = [
    ("misc/shmutils.cc:71 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab to 5967876 bytes", "high", "Shared memory", "--shm-size"),
    ("misc/shmutils.cc:87 NCCL WARN Call to posix_fallocate failed : No space left on device", "high", "Shared memory", "--ipc=host"),
    ("misc/shmutils.cc:129 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-Ab (size 9), error: No such file or directory (2)", "high", "attach", "--ipc=host"),
    ("transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5> with error 12, opcode 0, len 0, vendor err 129 (Recv)", "high", "retry exceeded (12)", "ibstat"),
    ("ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5> with status=5 opcode=32616 len=0 vendor err 249 (Recv)", "medium", "flushed (5)", "ibstat"),
    ("p2p.cc:648 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<5> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 hca mlx5_1", "high", "retry exceeded (12)", "ibstat"),
    ("misc/ibvwrap.cc:296 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out", "high", "ibv_modify_qp failed: Connection timed out", "GID"),
    ("misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 10.0.0.1<38007> failed : No route to host", "high", "10.0.0.1<38007>", "NCCL_SOCKET_IFNAME"),
    ("misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer node-b<4>", "medium", "Another rank closed", "stops first"),
    ("graph/paths.cc:329 NCCL WARN P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity", "high", "NVLink-connected GPUs 1 and 0", "nvlink -s"),
    ("init.cc:880 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", "high", "same GPU", "LOCAL_RANK"),
    ("NCCL WARN CUDA FAILURE 2 'out of memory'", "high", "out of memory", "Xid"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "severity", "told", "fix"), KNOWN)
@pytest.mark.parametrize("head", [HEAD, "pod-id:num:num [3] ", "[2026-01-02 03:04:05] " + HEAD, ""])
def test_known_warnings(head, line, severity, told, fix):
    one = first(head + line)
    assert (one.rule, one.severity) == ("warnings", severity)
    assert told in one.diagnosis
    assert fix in one.recommendation


@pytest.mark.parametrize(("line", "told"), [
    ("[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "Rank 3 ran out of GPU memory"),
    ("[rank2]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "Rank 2 got a CUDA error: an illegal memory access"),
    ("kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "Xid 79 (fell off the bus) on PCI:0000:3b:00"),
    ("[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 1800000 ms", "Rank 1, 2 did not reach"),
    ("DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.", "Only 3/4 ranks joined"),
    ("[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout", "Rank 0 never set up the NCCL communicator"),
    ("torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to (10.0.0.1, 29500).", "address 10.0.0.1, 29500 cannot be reached"),
    ("RuntimeError: The server socket has failed to listen. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", "[::]:29500 is in use"),
    ("RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: X(OpType=ALLREDUCE), but Rank 0 is running collective: X(OpType=ALLREDUCE)).Collectives differ in the following aspects:   Tensor Tensor shapes: 19vs 51", "Ranks 1 and 0 call different collectives: Tensor Tensor shapes: 19vs 51."),
    ("a:1:2 [0] ofi.c:1 NCCL WARN NET/OFI Unable to insert remote address into address vector for device 1. RC: -12", "(NET/OFI, EFA) failed: Unable to insert remote address"),
    ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. ", "DataLoader worker was killed: Bus error"),
    ("ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)", "no network interface"),
    ("kernel: NVRM: Xid (PCI:0000:dc:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07\nkernel: NVRM: Xid (PCI:0000:ed:00): 45, pid=1, caused by previous Xid 149", "Xid 149 (NVLink error) on PCI:0000:dc:00."),
])  # fmt: skip
def test_errors_without_nccl(line, told):
    one = first(line + "\n" + timeout(0, 5))
    assert told in one.diagnosis
    assert one.severity == "high"


def test_p2p_that_the_driver_refuses():
    refused = "node0:100:100 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n"
    one = first(refused + log(via="SHM/direct/direct", ends="closed"))
    assert (one.rule, one.severity) == ("p2p_refused", "medium")
    assert "4 × SHM" in one.diagnosis
    assert "GPUs 1 and 0" in one.signal


def test_a_redacted_log_and_a_setting_that_it_contradicts():
    lines = [f"pod-id:num:num [{rank}] NCCL INFO comm 0x5{rank} rank {rank} nRanks 4 nNodes 1 localRanks 4 localRank {rank} MNNVL 0\n"
             f"pod-id:num:num [{rank}] NCCL INFO Channel 00 : {rank}[{rank}] -> {(rank + 1) % 4}[{(rank + 1) % 4}] via SHM/direct/direct"
             for rank in range(4)]  # fmt: skip
    text = "pod-id:num:num [0] NCCL INFO NCCL_SHM_DISABLE set by environment to 1.\n" + "\n".join(lines)
    one = first(text)
    assert one.diagnosis == "NCCL_SHM_DISABLE=1 is set, yet 4 connections use shared memory (SHM)."
    assert "on 1 of 4 processes" in one.signal


@pytest.mark.parametrize(("text", "is_suspected"), [
    (log(ends="connected"), True), (log(ends="closed"), False), (log(ends="connected") + "\nstep 1 loss 3.1", False),
    (log(ends="connected") + "\n" + timeout(0, 1), True), (log(ends="connected", via="SHM"), False),
    (log(ends="connected").replace("coll channels", "coll channels\nnode0:100:100 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 12, bw 20.0/20.0, type NVL/PIX, sameChannels 1"), False),
])  # fmt: skip
def test_a_log_that_stops_after_p2p_without_a_topology(text, is_suspected):
    found = {one.rule: one for one in examine(nccl_logs=[("a", text)]).diagnoses}
    assert ("suspected_p2p_failure" in found) == is_suspected
    if is_suspected:
        assert "nvidia-smi topo -m" in found["suspected_p2p_failure"].recommendation
        assert "NCCL_P2P_DISABLE=1" in found["suspected_p2p_failure"].recommendation


def test_no_collective_of_a_job_ever_completed():
    text = "\n".join(
        timeout(rank, 1) + "\n" + status(rank, GLOBAL, "Timeout at NCCL work: 1, ", 1, -1) for rank in range(4)
    )
    one = first(text)
    assert "on ranks 0–3: no collective ever completed" in one.diagnosis
    assert "NCCL_SOCKET_IFNAME" in one.recommendation


@pytest.mark.parametrize("line", [
    "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL",
    "[ERROR] [launch.py:325:sigkill_handler] ['python3', '-u', 'train.py', '--local_rank=2'] exits with return code = -9",
])  # fmt: skip
def test_a_process_that_other_launchers_lost(line):
    assert first(line).diagnosis == "The process of local rank 2 was killed by SIGKILL (usually out of host memory)."


def test_an_exception_that_the_other_ranks_wait_for():
    lines = ["[rank1]: Traceback (most recent call last):", '[rank1]:   File "train.py", line 160, in main',
             "[rank1]: KeyError: 'input_ids'", *(timeout(rank, 7) for rank in (0, 2)),
             "[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275"]  # fmt: skip
    one = first("\n".join(lines))
    assert (one.rule, one.severity, one.ranks) == ("python_errors", "high", (1,))
    assert one.diagnosis == "Rank 1 raised KeyError: 'input_ids'."
    assert "The timeout of ranks 0 and 2 follows from it." in one.signal


def test_abort_is_a_cause_where_no_watchdog_speaks():
    assert "SIGABRT" in first(SUMMARY.format(code=-6)).diagnosis


def test_a_gpu_without_the_links_of_the_others():
    """As NVIDIA/nccl's and vLLM's users printed it: `nvidia-smi topo -m` of eight GPUs, `nvidia-smi nvlink -s` of four."""
    names = [f"GPU{number}" for number in range(8)]
    rows = [" ".join([one, *("X" if one == other else "NODE" if "GPU2" in (one, other) else "NV18" for other in names), "0-55", "0"])
            for one in names]  # fmt: skip
    one = first(topo=matrix(*rows, head=" ".join([*names, "CPU Affinity", "NUMA Affinity"])))
    assert (one.rule, one.severity) == ("slow_links", "high")
    assert one.diagnosis == "NVLink of 1 of 8 GPUs is narrower: GPU2 0 links, where others have 18."
    links = "".join(
        f"GPU {gpu}: Tesla V100-SXM2-32GB (UUID: GPU-1)\n"
        + "".join(f"\t Link {link}: {'<inactive>' if (gpu, link) == (3, 5) else '25.781 GB/s'}\n" for link in range(6))
        for gpu in range(4)
    )
    assert first(links).diagnosis == "NVLink of 1 of 4 GPUs is narrower: GPU3 5 active links, where others have 6."


FABRIC = (
    "node{host}:{pid}:{pid} [0] NCCL INFO MNNVL busId 0x100 fabric UUID 7f00.1 cliqueId 0x1 state 3 healthMask 0x0\n"
)


@pytest.mark.parametrize("via", ["NET/IB/0/GDRDMA", "P2P/MNNVL"])
def test_hosts_of_one_nvlink_domain(via):
    """GB200 NVL72; lines of `src/init.cc`, `src/mnnvl.cc` and `src/transport/p2p.cc` of NCCL 2.30."""
    text = log(ranks=4, hosts=2, via=via, ends="closed")
    text += "\n" + "".join(FABRIC.format(host=rank // 2, pid=100 + rank) for rank in range(4))
    if via == "P2P/MNNVL":
        text += "node0:100:100 [0] NCCL INFO MNNVL 1 cliqueId 1 cliqueSize 4 cliqueRank 0 nvlDomainSize 72\n"
    found = {one.rule: one for one in examine(nccl_logs=[("a", text)]).diagnoses}
    assert ("mnnvl_unused" in found) == (via != "P2P/MNNVL")
    assert ("NVLink domain of 72 GPUs (MNNVL)" in found["log_in_words"].diagnosis) == (via == "P2P/MNNVL")


def test_ras_and_the_watchdog_in_one_file():
    ras = """NCCL version 2.26.2 compiled with CUDA 12.4
Job summary
===========

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1        32         8       256       256   RUNNING      OK

"""
    one = first(ras + timeout(118, 2_398_459) + "\n" + dump_signal(0, " rank 118", 2_398_577, 2_398_458))
    assert "2398459" in one.diagnosis
    assert "RAS reports RUNNING" in one.diagnosis
    assert "Rank 0 last enqueued 2398577" in first(ras + dump_signal(0, " rank 118", 2_398_577, 2_398_458)).signal


def test_dumps_without_entries(tmp_path):
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"version": "2.5", "pg_config": {}, "pg_status": {}}, 2))
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps({"version": "2.5", "pg_config": {}}, 2)[:-9])
    one = examine(flight_recorder=tmp_path).diagnoses[0]
    assert "no entries (rank 0); 1 more could not be read" in one.diagnosis
    assert "TORCH_FR_BUFFER_SIZE" in one.signal


def matrix(*rows, head="GPU0 GPU1 GPU2 mlx5_0 CPU_Affinity NUMA_Affinity"):
    return "\n".join([head, *rows])


def test_a_path_across_sockets_from_the_topology_alone():
    one = first_of = examine(topo=("t", matrix("GPU0 X SYS 0 0", "GPU1 SYS X 1 1", head="GPU0 GPU1 CPU Affinity"))).diagnoses[0]  # fmt: skip
    assert first_of.rule == "sys_paths"
    assert "32 GB/s" in one.signal
    assert "hangs where the IOMMU or ACS" in one.recommendation


def smi(*busy, name="NVIDIA H100 80GB HBM3"):
    rows = "".join(
        f"|   {number}  {name}          On  |   00000000:1{number}:00.0 Off |                    0 |\n"
        f"| N/A   35C    P0            112W /  700W |   75000MiB /  81559MiB |    {pct:3d}%      Default |\n"
        for number, pct in enumerate(busy)
    )
    return "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4 |\n" + rows


def test_an_inventory_with_a_gpu_that_the_others_wait_for(tmp_path, capsys):
    (tmp_path / "smi.txt").write_text(smi(100, 100, 0, 100))
    assert run(["doctor", str(tmp_path)]) == 0
    assert "GPU 2 idle while GPUs 0, 1 and 3 run at 100%" in " ".join(capsys.readouterr().out.split())
    assert first(smi(100, 100)).diagnosis == "The machine has 2 × NVIDIA H100 80GB HBM3."
    listed = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\nGPU 1: NVIDIA A100-PCIE-40GB (UUID: GPU-2)\n"
    assert first(listed).severity == "medium"


@pytest.mark.parametrize("line", ["ConnectionResetError: [Errno 104] Connection reset by peer", "export NCCL_DEBUG=INFO",
                                  "retrying: accept failed", "git: Broken pipe"])  # fmt: skip
def test_other_programs_troubles_are_none_of_nccls(line, tmp_path):
    (tmp_path / "train.log").write_text(line)
    (tmp_path / "nccl.log").write_text(log(ends="closed"))
    assert run(["doctor", str(tmp_path)]) == 0
    assert {one.severity for one in examine(nccl_logs=[("a", log(ends="closed") + "\n" + line)]).diagnoses} == {"info"}


def test_a_stuck_watchdog_in_a_terminal_that_cuts_words():
    """The terminal pads the last line of each message with spaces; the message of 2.4 repeats its prefix."""
    line = "[rank6]:[F429 13:55:49.3 ProcessGroupNCCL.cpp:1743] [PG ID 14 PG GUID 117(EXPERT_PARALLEL) Rank 1] [PG ID 14 PG GUID 117(EXPERT_PARALLEL) Rank 1] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives, TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
    at = line.index("'s watchdog") + 1
    for width in (at, at // 2):
        cut = [line[start : start + width].ljust(width) for start in range(0, len(line), width)]
        one = first("\n".join(cut * 2))
        assert (one.rule, one.ranks) == ("stuck_watchdog", (6,)), width
    old = "[rank1]:[E1019 ProcessGroupNCCL.cpp:1413] [PG 3 Rank 1] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=121"
    assert first(old).diagnosis == "A CUDA or NCCL call blocks rank 1."


def test_ras_of_a_process_that_died():
    text = """Job summary
===========
Communicators... (2.05s)
=============
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487 on node 10.0.0.3 managing GPU 5

"""
    one = first(text)
    assert one.severity == "high"
    assert "Process 3487 on node 10.0.0.3 managing GPU 5" in one.diagnosis
    assert "RUNNING" not in first(text + timeout(0, 5)).diagnosis


def test_dumps_without_entries_still_tell_the_last_numbers(tmp_path):
    for rank, enqueued in enumerate((6, 5, 6)):
        status = {
            "0": {"last_enqueued_collective": enqueued, "last_started_collective": 5, "last_completed_collective": 5}
        }
        dump = {"version": "2.10", "pg_config": {}, "pg_status": status, "entries": []}
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, 2))
    one = examine(flight_recorder=tmp_path).diagnoses[0]
    assert (one.severity, one.ranks) == ("high", (1,))
    assert "rank 1 of group 0 last enqueued 5, started 5, completed 5" in one.signal


def test_nvlink_that_the_driver_refuses():
    refused = "node0:100:100 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message"
    topology = matrix("GPU0 X NV18 0-7 0", "GPU1 NV18 X 0-7 0", head="GPU0 GPU1 CPU Affinity NUMA Affinity")
    one = first(refused + "\n" + log(via="SHM/direct/direct", ends="closed"), topo=topology)
    assert one.rule == "nvlink_unused"
    assert "P2P is disabled between connected GPUs 1 and 0" in one.diagnosis


def test_dumps_that_name_the_missing_rank_leave_p2p_alone(tmp_path):
    dumps = {rank: dump([entry(1), *([entry(2, state="started")] * (rank == 0))], (0, 1)) for rank in (0, 1)}
    folder = write_dumps(tmp_path / "dumps", dumps)
    (tmp_path / "nccl.log").write_text(log(ends="connected"))
    found = {one.rule for one in examine(flight_recorder=folder, nccl_logs=[tmp_path / "nccl.log"]).diagnoses}
    assert "rank_never_came" in found
    assert "suspected_p2p_failure" not in found


def test_half_a_character_in_a_log_does_not_break_its_page():
    text = log(environment=(("NCCL_SOCKET_IFNAME", "eth\ud8000"),))
    page = examination.page(examine(nccl_logs=[("0.log", text)]), "doctor 0.log")
    assert "eth?0" in page
