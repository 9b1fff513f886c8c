"""One small job as PyTorch 1.8 to today's would have written it: the figures are the same.

Field names, categories and units are those of Kineto's and PyTorch's sources of each time.
"""

import json
import re

import pytest

import traceanalyzer as ta
from tests.builders import document, host, kernel, write
from traceanalyzer.analyses import run

DEVICES = [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 10**11}]
OLD_KERNEL = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclColl)"
NEW_KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SIZES = {"In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 2, "dtype": "Float"}
GROUP = {"Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]"}
BASE_NS = 1_790_857_026_000_000_000


def work(rank):
    """Three steps: `(kind, name, start, length, correlation)` in whole µs. Rank 1 comes 20 µs late to the all-reduce."""
    late = 20 * rank
    for step in range(3):
        at, number = 1_000 * step, 10 * step
        yield "step", f"ProfilerStep#{step}", at, 900, 0
        yield "op", "aten::mm", at + 10, 30, number + 1
        yield "call", "cudaLaunchKernel", at + 20, 5, number + 1
        yield "copy", "Memcpy HtoD (Pinned -> Device)", at + 60, 40, number + 2
        yield "call", "cudaMemcpyAsync", at + 50, 5, number + 2
        yield "kernel", "gemm", at + 100, 200, number + 1
        yield "nccl", "nccl:all_reduce", at + 210, 40, number + 3
        yield "call", "cudaLaunchKernel", at + 220, 5, number + 3
        yield "comm", "", at + 320 + late, 100 - late, number + 3


def event(cat, name, start, length, args, *, tid=1, pid=100):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": args}


def pytorch_1_8(rank):
    events = []
    for kind, name, start, length, number in work(rank):
        time = 1_621_401_187_000_000 + start, length
        shapes = {"Input dims": [[1000]]} if kind == "nccl" else {"Input dims": [[64, 64], [64, 64]]}
        if kind in ("step", "op", "nccl"):
            told = {"Device": 100, "External id": number, **shapes, "Input type": ["float", "float"]}
            events.append(event("Operator", name, *time, told, tid="100"))
        elif kind == "call":
            told = {"cbid": 211, "correlation": number, "external id": number, "external ts": time[0]}
            events.append(event("Runtime", name, *time, told, tid="100"))
        else:
            told = {"queued": 0, "device": 0, "context": 1, "stream": 20 if kind == "comm" else 7,
                    "correlation": number, "external id": number, "bytes": 4096}  # fmt: skip
            stream = f"stream {told['stream']}"
            category = "Memcpy" if kind == "copy" else "Kernel"
            events.append(event(category, name or OLD_KERNEL, *time, told, tid=stream, pid=0))
    return {"schemaVersion": 1, "computeProperties": DEVICES, "traceEvents": events}


def pytorch_1_13(rank):
    return {"schemaVersion": 1, "deviceProperties": DEVICES, **distributed(rank), "traceEvents": list(later(rank))}


def pytorch_2_1(rank):
    """Kernels have the sizes of their collectives, but neither its name nor a group."""
    events = list(later(rank, host=SIZES | {"Collective name": "allreduce"}, kernel=SIZES))
    return {"schemaVersion": 1, "deviceProperties": DEVICES, **distributed(rank), "traceEvents": events}


def pytorch_2_6(rank):
    told = {"Collective name": "allreduce", **SIZES, **GROUP}
    events = list(later(rank, host=told | {"Seq": 1}, kernel=told, base_us=100.0, name=NEW_KERNEL))
    return {"schemaVersion": 1, "deviceProperties": DEVICES, **distributed(rank), "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS, "traceEvents": events}  # fmt: skip


def on_demand(rank):
    """Started from outside: what the job is stands after the events, the groups' ranks as text."""
    told = {"Collective name": "allreduce", **SIZES, **GROUP, "Seq": 1, "Comms Id": 7}
    events = list(later(rank, host=told, kernel=told, base_us=100.0, name=NEW_KERNEL))
    events += [
        {"ph": "C", "cat": "hardware_counters", "name": "CUPTI PM Sampling", "pid": 0, "tid": 0, "ts": 100.0 + 500 * place,
         "args": {"sm__cycles_active.avg": 1.5 * place, "dram__bytes_read.sum": 2048}}
        for place in range(3)
    ]  # fmt: skip
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": "[0, 1]"}
    info = {"backend": "nccl", "rank": rank, "world_size": 2, "pg_count": 1, "pg_config": [group]}
    return {"schemaVersion": 1, "deviceProperties": DEVICES, "baseTimeNanoseconds": BASE_NS, "traceEvents": events,
            "distributedInfo": info, "traceName": "a.json"}  # fmt: skip


def cuspy(rank):
    """PyTorch's own collector (torch/profiler/_cuspy/trace.py): a copy's direction and memories are arguments."""
    made = pytorch_2_6(rank)
    for copy in [one for one in made["traceEvents"] if one["cat"] == "gpu_memcpy"]:
        kinds = re.fullmatch(r"Memcpy (\w+) \((\w+) -> (\w+)\)", copy["name"])
        names = ("copy kind", kinds[1]), ("src kind", kinds[2].lower()), ("dst kind", kinds[3].lower())
        copy |= {"name": "Memcpy", "args": copy["args"] | dict(names)}
    clock = {"ph": "C", "cat": "gpu_environment", "name": "SM clock", "pid": 0, "tid": 0, "ts": 100.0}
    made["traceEvents"] += [
        clock | {"args": {"sm_clock_mhz": 1980}},
        clock | {"ts": 900, "args": {"sm_clock_mhz": 1410}},
    ]
    return made


def distributed(rank):
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}


def later(rank, host=None, kernel=None, base_us=1_621_401_187_000_000, name=OLD_KERNEL):
    """Categories and arguments of PyTorch 1.12 and after."""
    for kind, what, start, length, number in work(rank):
        time = base_us + start, length
        if kind == "step":
            yield event("user_annotation", what, *time, {})
        elif kind in ("op", "nccl"):
            told = {
                "Input Dims": [[1000]] if kind == "nccl" else [[64, 64], [64, 64]],
                "Input type": ["float", "float"],
            }
            yield event("cpu_op" if kind == "op" else "user_annotation", what, *time, {"External id": number, **told})
            if kind == "nccl":
                args = {"External id": number, **told, **(host or {})}
                yield event("cpu_op", "record_param_comms" if host else what, time[0] + 2, length - 4, args)
        elif kind == "call":
            yield event("cuda_runtime", what, *time, {"cbid": 211, "correlation": number, "External id": number})
        else:
            stream = 20 if kind == "comm" else 7
            told = {"External id": number, "device": 0, "stream": stream, "correlation": number, "bytes": 4096}
            more = (kernel or {}) if kind == "comm" else {}
            category = "gpu_memcpy" if kind == "copy" else "kernel"
            yield event(category, what or name, *time, told | more, tid=stream, pid=0)


AGES = {"1.8": pytorch_1_8, "1.13": pytorch_1_13, "2.1": pytorch_2_1, "2.6": pytorch_2_6, "on demand": on_demand,
        "Cuspy": cuspy}  # fmt: skip


@pytest.fixture(scope="module")
def of_age(tmp_path_factory):
    """The results of each age, worked out once."""
    folder = tmp_path_factory.mktemp("ages")
    wanted = ("breakdown", "steps", "nccl", "exposed_comm", "operator_shapes", "gpu_metrics", "groups")
    found = {}
    for name, made in AGES.items():
        for rank in (0, 1):
            write(folder / name / f"rank{rank}.json", json.dumps(made(rank)).encode())
        found[name] = run(ta.load(folder / name), wanted)
    return found


@pytest.mark.parametrize("name", AGES)
def test_the_figures_are_the_same(of_age, name):
    results = of_age[name]
    times = results["breakdown"].to_frame()[["rank", "window_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns"]]
    assert times.to_numpy().tolist() == [
        [0, 2_360_000, 600_000, 300_000, 120_000], [1, 2_360_000, 600_000, 240_000, 120_000],
    ]  # fmt: skip
    steps = results["steps"].to_frame().dropna(subset="step")
    assert steps["step"].tolist() == [0, 1, 2] * 2
    assert (steps["host_end_ns"] - steps["host_start_ns"]).tolist() == [900_000] * 6
    calls = results["nccl"].to_frame()[["collective", "calls", "size_bytes"]]
    assert calls.to_numpy().tolist() == [["all_reduce", 3, 12_000]] * 2
    waits = results["exposed_comm"].to_frame()
    assert waits.loc[waits["step"].isna(), "exposed_wait_ns"].tolist() == [60_000, 0]


@pytest.mark.parametrize("name", AGES)
def test_operators_have_their_shapes_and_kernels(of_age, name):
    shapes = of_age[name]["operator_shapes"].to_frame()
    own = shapes[shapes["operator"] == "aten::mm"]
    assert own["shapes"].unique().tolist() == ["[[64, 64], [64, 64]]"]
    assert own["gpu_own_ns"].tolist() == [600_000] * 2


def test_copies_and_clocks_of_cuspy(tmp_path):
    write(tmp_path / "rank0.json", json.dumps(cuspy(0)).encode())
    trace = ta.load(tmp_path).ranks[0]
    copies = trace.gpu_ops[trace.gpu_ops["activity"] == "memcpy"]
    assert copies[["name", "direction", "source_memory", "target_memory"]].drop_duplicates().to_numpy().tolist() == [
        ["Memcpy HtoD (Pinned -> Device)", "HtoD", "pinned", "device"]
    ]
    assert trace.counters[["name", "value"]].to_numpy().tolist() == [["sm_clock_mhz", 1980], ["sm_clock_mhz", 1410]]


@pytest.mark.parametrize("name", ["2.6", "on demand", "Cuspy"])
def test_groups_have_their_ranks(of_age, name):
    assert of_age[name]["groups"].to_frame()["group_ranks"].unique().tolist() == ["0,1"]


def stepped(numbers, *, pause_us=0, category="user_annotation"):
    """Steps of 100 µs by number, 50 of them on the GPU; before the second half of them nothing is recorded."""
    for place, number in enumerate(numbers):
        at = 100 * place + (pause_us if 2 * place >= len(numbers) else 0)
        yield host(at, 90, name=f"ProfilerStep#{number}", cat=category)
        yield host(at + 5, 3, name="cudaLaunchKernel", cat="cuda_runtime", correlation=10 + place)
        yield kernel(at + 20, 50, correlation=10 + place)


def test_steps_among_the_operators_are_steps(tmp_path):
    write(tmp_path / "rank0.json", document(list(stepped((3, 4, 5), category="cpu_op")), rank=0, world_size=1))
    results = run(ta.load(tmp_path).ranks, ["steps"])
    assert results["steps"].to_frame()["step"].dropna().tolist() == [3, 4, 5]


def test_facts_of_kernels_that_newer_versions_record(tmp_path):
    """Fields as Kineto's CUPTI writer of 2026 spells them: what limits the occupancy stands in an object."""
    limits = {"activeBlocksPerMultiprocessor": 3, "limitingFactors": "WARPS|REGS", "blockLimitRegs": 3}
    newer = {
        "registers per thread": 40,
        "est. achieved occupancy %": 80,
        "occupancy": limits,
        "priority": -5,
        "channel": 9,
    }
    older = {"registers per thread": 128, "est. achieved occupancy %": 20}
    events = [
        kernel(0, 30, correlation=1, **newer), kernel(40, 10, correlation=2, **newer | older),
        kernel(60, 10, correlation=3, name="copy", **older), kernel(80, 10, correlation=4, name="bare"),
    ]  # fmt: skip
    write(tmp_path / "rank0.json", document(events, rank=0, world_size=1))
    rows = {row["name"]: row for row in ta.kernels(ta.load(tmp_path)).rows()}
    names = ("registers", "occupancy_pct", "limiting_factors", "priority", "channel")
    found = {name: tuple(row[column] for column in names) for name, row in rows.items()}
    assert found == {
        "gemm": ("40,128", 65.0, "WARPS|REGS", "-5", "9"),
        "copy": ("128", 20.0, None, None, None),
        "bare": (None, None, None, None, None),
    }
