"""NCCL Inspector's files and NCCL's example profiler plugin's: who arrives last, and what bandwidth is reached.

Field names and layouts follow NCCL 2.30: plugins/profiler/inspector/inspector_json.cc and inspector_prom.cc,
plugins/profiler/example/print_event.cc and plugin.cc.
"""

import json

import pytest

from traceanalyzer.doctor import examine, read_monitors
from traceanalyzer.doctor.monitors import arrivals, bandwidth
from traceanalyzer.errors import InputError


def record(rank, number, us, *, size=4 << 20, busbw=100.0, peer=None):
    kind, name = ("coll", "AllReduce") if peer is None else ("p2p", "Send")
    told = {kind: name, f"{kind}_sn": number, f"{kind}_msg_size_bytes": size, f"{kind}_exec_time_us": us,
            f"{kind}_timing_source": "kernel_gpu", f"{kind}_algobw_gbs": busbw / 1.5, f"{kind}_busbw_gbs": busbw}  # fmt: skip
    return {
        "header": {"id": "0x7f", "comm_name": "unknown", "rank": rank, "n_ranks": 3, "nnodes": 1},
        "metadata": {"dump_timestamp_us": 1_748_030_377_748_202 + number, "hostname": "n", "pid": 1},
        f"{kind}_perf": told | ({} if peer is None else {"p2p_peer": peer}),
    }


def write(folder, indent=None):
    for rank in range(3):
        records = [record(rank, number, 100 if rank == 2 else 400) for number in range(60)]
        (folder / f"rank{rank}.log").write_text("".join(json.dumps(one, indent=indent) + "\n" for one in records))


def prom(gpu, us, busbw, *, what="collective", operation="AllReduce"):
    labels = (
        f'version="v5.1",slurm_job_id="unknown",node="t01",gpu="GPU{gpu}",comm_name="DP Group 0",n_nodes="1",nranks="4",'
        f'{what}="{operation}",message_size="4-5MB"' + (',algo_proto="Ring_ll"' if what == "collective" else "")
    )
    prefix = "nccl" if what == "collective" else "nccl_p2p"
    timed = "nccl_collective" if what == "collective" else "nccl_p2p"
    return f"{prefix}_bus_bandwidth_gbs{{{labels}}} {busbw}\n{timed}_exec_time_microseconds{{{labels}}} {us}\n"


def plugin(rank, calls):
    """Events as `printEvent` writes them: a call's own two, and between them a pair for each channel."""
    lines = ["["]
    for number, (start, length) in enumerate(calls):
        base = {"pid": 7, "tid": 1}
        told = {"SeqNum": number, "CommHash": 123, "Rank": rank, "Count": 1 << 20, "Datatype": "ncclFloat32",
                "Algorithm": "RING", "Protocol": "SIMPLE", "nChannels": 2}  # fmt: skip
        events = [{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": number, **base, "ts": start - 9, "args": told}]
        for channel in range(2):
            clocks = {"Channel": channel, "StartGpuClk": 1, "StopGpuClk": 2}
            events += [
                {"name": "KernelCh", "cat": "GPU", "ph": "b", "id": channel, **base, "ts": start, "args": clocks},
                {"name": "KernelCh", "cat": "GPU", "ph": "e", "id": channel, **base, "ts": start + length - channel},
            ]
        events.append({"name": "AllReduce", "cat": "COLL", "ph": "e", "id": number, **base, "ts": start - 5})
        lines += [json.dumps(event) + "," for event in events]
    return "\n".join([*lines, "{}]", ""])


@pytest.mark.parametrize("indent", [None, 2])
def test_the_rank_that_comes_last(tmp_path, indent):
    write(tmp_path, indent)
    found = read_monitors([tmp_path])
    late = arrivals(found).iloc[0]
    assert late[["communicator", "rank", "calls", "last", "caused_wait_ns", "wait_ns", "last_pct"]].to_list() == [
        "0x7f", 2, 60, 60, 60 * 300_000, 0, 100.0,
    ]  # fmt: skip
    assert bandwidth(found)[["calls", "median_gb_per_s"]].to_numpy().tolist() == [[60, 100.0]]
    one = next(one for one in examine(monitors=[tmp_path]).diagnoses if one.rule == "often_last")
    assert (one.ranks, "wait 300 µs in each" in one.diagnosis) == ((2,), True)


def test_a_rank_that_is_last_by_chance_is_no_straggler(tmp_path):
    """The shortest of three in 1 of 1 collectives says nothing; each in turn in 60 neither."""
    for rank in range(3):
        records = [record(rank, number, 100 if number % 3 == rank else 400) for number in range(60)]
        (tmp_path / f"rank{rank}.log").write_text("".join(json.dumps(one) + "\n" for one in records))
        (tmp_path / f"one{rank}.log").write_text(json.dumps(record(rank, 0, 100 * rank + 9, size=1 << 10)) + "\n")
    assert {one.rule for one in examine(monitors=[tmp_path]).diagnoses} == set()


def test_sends_between_two_ranks_that_are_slower(tmp_path):
    records = [record(rank, number, 50, busbw=10.0 if rank == 2 else 40.0, peer=rank + 1)
               for rank in range(4) for number in range(5)]  # fmt: skip
    (tmp_path / "a.log").write_text("".join(json.dumps(one) + "\n" for one in records))
    one = examine(monitors=[tmp_path]).diagnoses[0]
    assert (one.rule, one.ranks) == ("slow_pairs", (2, 3))
    assert "10.0 GB/s, other pairs at 40.0 GB/s" in one.diagnosis


def test_prometheus_files_of_the_inspector(tmp_path):
    for gpu in range(4):
        text = prom(gpu, 100 if gpu == 3 else 400, 200) + prom(gpu, 50, 40, what="p2p_operation", operation="Send")
        (tmp_path / f"nccl_inspector_metrics_GPU-{gpu}.prom").write_text(text)
    found = read_monitors([tmp_path])
    assert (found.files, len(found.calls)) == (4, 8)
    assert bandwidth(found)[["operation", "size_bytes", "median_gb_per_s"]].to_numpy().tolist() == [
        ["AllReduce", 4 << 20, 200.0], ["Send", 4 << 20, 40.0],
    ]  # fmt: skip
    one = examine(monitors=[tmp_path]).diagnoses[0]
    assert one.diagnosis.startswith("GPU3 of t01 arrives last at 100% of the collectives in communicator DP Group 0")


def test_events_of_the_profiler_plugin(tmp_path):
    for rank in range(3):
        calls = [(1000 * number + (300 if rank == 1 else 0), 100 if rank == 1 else 400) for number in range(20)]
        (tmp_path / f"ncclProfiler_123_{rank}.json").write_text(plugin(rank, calls))
    found = read_monitors([tmp_path])
    assert found.calls[["size_bytes", "duration_ns"]].drop_duplicates().to_numpy().tolist() == [
        [4 << 20, 400_000], [4 << 20, 100_000],
    ]  # fmt: skip
    assert examine(monitors=[tmp_path]).diagnoses[0].ranks == (1,)


def test_nothing_of_a_monitor(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    with pytest.raises(InputError, match="no record of NCCL Inspector"):
        read_monitors([tmp_path])
