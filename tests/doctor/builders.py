"""Topologies, NCCL logs and flight-recorder dumps as their programs write them, small."""

import pickle

SYS_TOPOLOGY = """\
\x1b[4m\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tSYS\tSYS\tSYS\tNODE\t0-31\t0\t\tN/A
GPU1\tSYS\t X \tPIX\tPXB\tSYS\t32-63\t1\t\tN/A
NIC0\tSYS\tPIX\t X \tPIX\tSYS\t\t\t\t
NIC1\tSYS\tPXB\tPIX\t X \tSYS\t\t\t\t
NIC2\tNODE\tSYS\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
  NIC2: mlx5_bond_0
"""


def log(*, ranks=2, via="P2P/CUMEM", ends="connecting", version="2.21.5+cuda12.4", hosts=1, environment=(), prefix="",
        incomplete=(), absent=(), channels=2):  # fmt: skip
    """One job's log; `ends`: where it stops, `connecting`, `connected` or `closed`."""
    lines = []
    per_host = ranks // hosts
    for rank in range(ranks):
        if rank in absent:
            continue
        device, host = rank % per_host, f"node{rank // per_host}"
        head = f"{prefix.format(rank=rank)}{host}:{100 + rank}:{100 + rank} [{device}] NCCL INFO "
        own_version = version[rank] if isinstance(version, tuple) else version
        comm = f"ncclCommInitRank comm 0x{rank + 16:x}0 rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device} busId {device}000 commId 0xabc - Init"
        lines += [head + f"NCCL version {own_version}", head + "Using network " + ("IB" if "IB" in via else "Socket")]
        lines += [head + f"{name} set by environment to {value}." for name, value in environment]
        lines += [head + f"{comm} START"]
        lines += [
            head
            + f"comm 0x{rank + 16:x}0 rank {rank} nRanks {ranks} nNodes {hosts} localRanks {per_host} localRank {device} MNNVL 0"
        ]
        if rank in incomplete:
            continue
        lines += [
            head
            + f"{channels} coll channels, 0 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer"
        ]
        lines += [head + f"{comm} COMPLETE"]
        after = (rank + 1) % ranks
        lines += [
            head + f"Channel 0{channel}/0 : {rank}[{device}] -> {after}[{after % per_host}] via {via}"
            for channel in range(channels)
        ]
        if ends in ("connected", "closed"):
            lines += [head + "Connected all rings"]
        if ends == "closed":
            lines += [
                head
                + f"comm 0x{rank + 16:x}0 rank {rank} nranks {ranks} cudaDev {device} busId {device}000 - Destroy COMPLETE"
            ]
    return "\n".join(lines)


def entry(
    seq,
    operation="nccl:all_reduce",
    state="completed",
    sizes=((1024,),),
    dtype="Float",
    group=("0", "default_pg"),
    **others,
):
    return {
        "collective_seq_id": seq, "p2p_seq_id": 0, "is_p2p": False, "op_id": seq, "record_id": seq - 1, "pg_id": 0,
        "process_group": group, "profiling_name": operation, "state": state, "retired": state == "completed",
        "input_sizes": [list(size) for size in sizes], "output_sizes": [list(size) for size in sizes],
        "input_dtypes": [dtype], "output_dtypes": [dtype], "timeout_ms": 600_000,
        "time_created_ns": 1_700_000_000_000_000_000 + seq * 1_000_000, "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "frames": [{"filename": "torch/distributed/distributed_c10d.py", "line": 1, "name": "all_reduce"},
                   {"filename": "train.py", "line": 40 + seq % 3, "name": "train_step"}],
        **others,
    }  # fmt: skip


def dump(entries, ranks, name="0", description="default_pg"):
    config = {name: {"name": name, "desc": description, "ranks": str(list(ranks))}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "comm_lib_version": "2.28.9", "entries": entries}


def write_dumps(folder, dumps, protocol=2):
    folder.mkdir(exist_ok=True)
    for rank, content in dumps.items():
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=protocol))
    return folder
