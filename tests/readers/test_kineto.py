"""Kineto files: layouts, names and times of all ages, and every kind of damage."""

import gzip
import json

import pytest

from tests.builders import document, host, kernel, write
from traceanalyzer.analyses.integrity.checks import lost_launches
from traceanalyzer.decoding import stream as decoding_stream
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, kineto
from traceanalyzer.selection import Selection, select

EVENTS = [
    host(0.5, 4, name="aten::mm", **{"External id": 1}),
    host(1, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=5),
    kernel(10.001, 2.5, correlation=5, grid=[4, 1, 1], block=[128, 1, 1]),
    kernel(20, 1.25, name="Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=4096),
]
FILES = [(kineto, lambda folder: write(folder / "a.json", document(EVENTS)))]


def read(path, rank=3):
    return list(kineto.read(path, RankHint(rank, "path"), KindRules()))


def only(path):
    (trace,) = read(path)
    return trace


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("content", [document(EVENTS), EVENTS], ids=["object", "bare array"])
def test_plain_and_gzip_object_and_array(tmp_path, name, content):
    trace = only(write(tmp_path / name, content))
    ops = trace.gpu_ops
    assert ops["start_ns"].tolist() == [10_001, 20_000]
    assert ops["end_ns"].tolist() == [12_501, 21_250]
    assert ops["kind"].tolist() == ["compute", "copy"]
    assert ops["launch"].tolist() == [0, -1]
    assert ops["grid"].tolist()[0] == "4x1x1"
    assert (ops["direction"].tolist()[1], ops["source_memory"].tolist()[1], ops["bytes"].tolist()[1]) == (
        "HtoD", "pageable", 4096,
    )  # fmt: skip
    assert trace.host_ops["name"].tolist() == ["aten::mm"]
    assert (trace.rank, trace.meta.rank_source) == (3, "path")


def test_properties_name_the_rank_groups_device_and_versions(tmp_path):
    info = {"rank": 1, "world_size": 4, "nccl_version": "2.28.9",
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]}]}  # fmt: skip
    content = document(EVENTS, distributedInfo=info, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}],
                       cuda_runtime_version=13000)  # fmt: skip
    meta = only(write(tmp_path / "a.json", content)).meta
    assert (meta.rank, meta.rank_source, meta.world_size) == (1, "distributedInfo", 4)
    assert meta.groups[0].ranks == (0, 1, 2, 3)
    assert (meta.device_name, meta.versions) == ("NVIDIA H200", {"cuda_runtime": "13.0", "nccl": "2.28.9"})


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b'"sms": 1', b'"sms": NaN'),
        lambda text: text.replace(b'"sms": 1', b'"sms": 1,,'),
        lambda text: text.replace(b"H200", b"H\xff200"),
        lambda text: text.replace(b'"pg_config": []', b'"pg_config": "[]"'),
        lambda text: text.replace(b'"pg_config": []', b'"pg_config": [{"ranks": [1e99]}]'),
        lambda text: text.replace(b'"trace_id": "T"', b'"trace_id": 5'),
        lambda text: text.replace(b'"cuda_driver_version": 13000', b'"cuda_driver_version": 1' + b"0" * 5000),
        lambda text: text.replace(b'"sms": 1', b'"sms": ' + b"[" * 100_000 + b"]" * 100_000),
    ],
    ids=["byte order mark", "NaN", "bad JSON", "invalid UTF-8", "groups as text", "odd group", "odd id", "huge version",
         "deep"],
)  # fmt: skip
def test_an_odd_property_costs_no_other(tmp_path, damage):
    content = document(EVENTS, rank=1, world_size=4, base_ns=10**18, trace_id="T", cuda_driver_version=13000,
                       deviceProperties=[{"id": 0, "name": "NVIDIA H200", "sms": 1}])  # fmt: skip
    whole = json.dumps(content).encode()
    damaged = damage(whole)
    assert damaged != whole
    trace = only(write(tmp_path / "a.json", damaged))
    assert (trace.rank, trace.meta.world_size, trace.gpu_ops["start_ns"].iloc[0]) == (1, 4, 10**18 + 10_001)
    header = kineto.peek(tmp_path / "a.json")
    assert (header.ranks, header.world_size) == ((1,), 4)


def test_properties_after_the_events_count_too(tmp_path):
    content = {"traceEvents": EVENTS, "distributedInfo": {"rank": 2, "world_size": 3}, "baseTimeNanoseconds": 10**18}
    trace = only(write(tmp_path / "a.json", content))
    assert trace.rank == 2
    assert trace.gpu_ops["start_ns"].tolist() == [10**18 + 10_001, 10**18 + 20_000]


def test_old_category_names_and_streams_in_tid(tmp_path):
    events = [{"ph": "X", "cat": "Kernel", "name": "gemm", "pid": 2, "tid": "stream 7", "ts": 1, "dur": 2, "args": {}},
              {"ph": "X", "cat": "Memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "pid": 2, "tid": "stream 9", "ts": 5,
               "dur": 2}]  # fmt: skip
    trace = only(write(tmp_path / "a.json", document(events)))
    assert trace.gpu_ops["stream"].tolist() == [7, 9]
    assert trace.gpu_ops["kind"].tolist() == ["compute", "copy"]
    assert trace.meta.device == 2


@pytest.mark.parametrize(
    ("base_ns", "ts", "expected_ns"),
    [
        (0, "1700000000000000", 1_700_000_000_000_000_000),
        (0, "1700000000123456.789", 1_700_000_000_123_456_789),
        (1_790_857_026_000_000_000, "4364160149625.886", 1_795_221_186_149_625_886),
        (0, "1700000000000001", 1_700_000_000_000_001_000),
        (0, "4441870693323.765", 4_441_870_693_323_765),
        (10**18, "4503500000000.001", 1_004_503_500_000_000_001),
        (0, "8796093022207.999", 8_796_093_022_207_999),
        (0, "-0.001", -1),
        (0, "12", 12_000),
        (0, "0.001", 1),
    ],
)
def test_times_are_exact_to_the_nanosecond(tmp_path, base_ns, ts, expected_ns):
    content = json.dumps(document([kernel(0, 0.003)], base_ns=base_ns)).replace('"ts": 0', f'"ts": {ts}').encode()
    ops = only(write(tmp_path / "a.json", content)).gpu_ops
    assert ops["start_ns"].tolist() == [expected_ns]
    assert ops["end_ns"].tolist() == [expected_ns + 3]


def text_of(events):
    return json.dumps(document(events))


def test_a_file_cut_in_an_event_keeps_all_before_it(tmp_path):
    events = [kernel(10 * n, 1) for n in range(50)]
    text = text_of(events)
    cut = text[: text.index('"ts": 300') + 4].encode()
    trace = only(write(tmp_path / "a.json", cut))
    assert len(trace.gpu_ops) == 30
    assert trace.meta.is_truncated
    assert trace.meta.notes == ("The file ends early: its 30 whole events are read.",)


def test_a_cut_gzip_keeps_what_can_be_unpacked(tmp_path):
    data = gzip.compress(text_of([kernel(10 * n, 1, name=f"k{n * 7919 % 1000}") for n in range(5000)]).encode())
    trace = only(write_raw(tmp_path / "a.json.gz", data[: len(data) // 2]))
    assert 500 < len(trace.gpu_ops) < 5000
    assert trace.meta.is_truncated


def write_raw(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("damage", "kept", "skipped"),
    [
        (lambda text: text.replace('"ts": 20,', '"ts": NaN,'), 2, 1),
        (lambda text: text.replace('"correlation": 77', '"correlation": Infinity'), 3, 0),
        (lambda text: text.replace('"stream": 9', '"stream": "9"'), 3, 0),
        (lambda text: text.replace("odd", "o\tdd"), 3, 0),
        (lambda text: text.replace('"ts": 20,', '"ts": 20 oops'), 2, 1),
        (lambda text: text.replace('"ph": "X", "cat": "kernel", "name": "odd"', '"name": "odd"'), 2, 1),
        (lambda text: text.replace("}]}", "},]}"), 3, 0),
        (lambda text: text.replace('"dur": 3', '"dur": -3'), 3, 0),
    ],
    ids=["NaN time", "Infinity", "number as text", "control character", "broken event", "no phase", "trailing comma",
         "negative duration"],
)  # fmt: skip
def test_a_bad_event_costs_only_itself(tmp_path, damage, kept, skipped):
    events = [kernel(10, 1), kernel(20, 3, name="odd", stream=9, correlation=77), kernel(30, 1)]
    damaged = damage(text_of(events))
    assert damaged != text_of(events)
    trace = only(write(tmp_path / "a.json", damaged.encode()))
    assert (len(trace.gpu_ops), trace.meta.events_skipped) == (kept, skipped)
    assert (trace.gpu_ops["end_ns"] >= trace.gpu_ops["start_ns"]).all()


def test_invalid_utf8_in_a_name_costs_nothing(tmp_path):
    data = text_of([kernel(10, 1, name="oddname"), kernel(20, 1)]).encode().replace(b"oddname", b"odd\xff\xfename")
    trace = only(write(tmp_path / "a.json", data))
    assert len(trace.gpu_ops) == 2
    assert "odd" in trace.gpu_ops["name"].iloc[0]


ORDERS = {
    "phase first": lambda event: event,
    "name first": lambda event: {"name": event["name"], **event},
    "arguments first": lambda event: {"args": event["args"], **event},
    "mixed": lambda event: event if event["ts"] else {"name": event["name"], **event},
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_chunks_end_between_events_whatever_the_chunk_size(tmp_path, monkeypatch, order):
    nested = {"list": [{"name": 1}, {"name": {"ts": 2}}, {"cat": 3}]}
    names = ["plain", 'a "}, {\\"ph\\": " b', ', {"ph": "X"']
    events = [order(kernel(10 * n, 1, name=names[n % 3], correlation=n, **nested)) for n in range(200)]
    path = write(tmp_path / "a.json", document(events))
    for size in (100, 777, 5000, 1 << 20):
        monkeypatch.setattr(decoding_stream, "HEAD_BYTES", 64)
        text = decoding_stream.EventText.open(path)
        chunks = list(text.chunks(size))
        assert sum(len(json.loads(b"[" + chunk + b"]")) for chunk in chunks) == 200
        assert max(map(len, chunks)) < 2 * size + 2000
        assert not text.is_truncated


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"hello", "no traceEvents"),
        (b'{"a": 1}', "no traceEvents"),
        (b'[{"id": 1}, {"id": 2}]', "no traceEvents"),
        (b'{"traceEvents": []}', "without PyTorch operators"),
        (b'{"traceEvents": [{"ph": "X", "cat": "x", "ts": 1}]}', "without PyTorch operators"),
        (b'{"traceEvents": [{"ph": "X"', "cut off before its first event"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}, {"ph',
            "cut off before its first GPU operation",
        ),
    ],
)
def test_what_is_no_trace_says_why(tmp_path, content, why):
    with pytest.raises(NotATraceError, match=why):
        read(write(tmp_path / "a.json", content))


@pytest.mark.parametrize("category", ["xpu_runtime", "mtia_runtime", "privateuse1_runtime", "hip_runtime", "Runtime"])
def test_calls_of_every_device_launch(tmp_path, category):
    events = [host(1, 2, name="launch", cat=category, correlation=5), kernel(10, 2, correlation=5)]
    assert only(write(tmp_path / "a.json", document(events))).gpu_ops["launch"].tolist() == [0]


def test_events_that_cannot_be_read_are_counted_and_left_to_integrity_to_say(tmp_path):
    events = [host(1, 2, name="aten::mm"), kernel(5, 2), kernel(8, 1e18)]
    trace = only(write(tmp_path / "a.json", document(events)))
    assert (trace.meta.events_skipped, trace.meta.notes) == (1, ())


def test_a_file_of_two_gpus_without_a_rank_is_two_ranks(tmp_path):
    comm = {"Collective name": "allreduce", "Group size": 2}
    events = [
        kernel(0, 1, device=1),
        kernel(5, 1, device=0),
        kernel(7, 1, device=1, name="ncclDevKernel_AllReduce", **comm),
    ]
    first, second = read(write(tmp_path / "a.json", document(events)), rank=0)
    assert [(t.rank, t.meta.device, len(t.gpu_ops)) for t in (first, second)] == [(0, 0, 1), (1, 1, 2)]
    assert first.comm_args.empty
    assert second.comm_args["gpu_op"].tolist() == [1]


@pytest.mark.parametrize(
    ("calls", "is_partial"),
    [
        ([("cudaLaunchKernel", 1), ("cudaLaunchKernel", 2)], False),
        ([("cudaLaunchKernel", 1), ("cuLaunchKernel", 1)], False),
        ([("cudaMemcpyAsync", 3)], False),
        ([("cudaLaunchKernel", 0)], False),
        ([("cudaLaunchKernel", 1), ("cudaLaunchKernel", 3)], True),
    ],
    ids=["two GPUs", "runtime and driver", "copy of nothing", "unknown id", "lost"],
)
@pytest.mark.parametrize("rank", [None, 0])
def test_a_step_is_partial_when_no_gpu_of_the_process_answers_a_launch(tmp_path, calls, is_partial, rank):
    events = [host(0, 90, name="ProfilerStep#1", cat="user_annotation"), kernel(10, 1, device=0, correlation=1),
              kernel(10, 1, device=1, correlation=2)]  # fmt: skip
    events += [host(1 + n, 1, name=name, cat="cuda_runtime", correlation=c) for n, (name, c) in enumerate(calls)]
    traces = read(write(tmp_path / "a.json", document(events, rank=rank, world_size=4)))
    assert len(traces) == (2 if rank is None else 1)
    for trace in traces:
        assert select(trace, Selection()).steps["is_partial"].tolist() == [is_partial]
        assert any(defect.count for defect in lost_launches(trace)) == is_partial


@pytest.mark.parametrize(
    ("per_gpu", "rank", "world_size", "ranks"),
    [
        ((2, 2), 0, 2, [0, 1]),  # nn.DataParallel under torchrun: the first process drives all GPUs
        ((3, 1), 0, 2, [0]),  # a few operations on another GPU than the rank's own
        ((2, 2), 1, 2, [1]),
        ((2, 2), 0, 4, [0]),
    ],
)
def test_one_process_that_drives_the_whole_job_s_gpus_is_all_its_ranks(tmp_path, per_gpu, rank, world_size, ranks):
    events = [kernel(10 * n, 1, device=gpu) for gpu, count in enumerate(per_gpu) for n in range(count)]
    traces = read(write(tmp_path / "a.json", document(events, rank=rank, world_size=world_size)))
    assert [trace.rank for trace in traces] == ranks
    assert [len(trace.meta.notes) for trace in traces] == [int(len(ranks) == 1)] * len(ranks)


def test_memory_events_become_counters(tmp_path):
    args = {"Total Allocated": 10, "Total Reserved": 20, "Bytes": 5, "Device Id": 0, "Device Type": 1}
    cpu = {**args, "Device Type": 0}
    events = [kernel(0, 1), *({"ph": "i", "name": "[memory]", "ts": 3, "args": a} for a in (args, cpu))]
    counters = only(write(tmp_path / "a.json", document(events))).counters
    assert dict(zip(counters["name"], counters["value"], strict=True)) == {
        "memory_allocated_bytes": 10, "memory_reserved_bytes": 20,
    }  # fmt: skip


def test_a_peer_is_a_place_in_its_group(tmp_path):
    args = {"Collective name": "send", "Dst Rank": 3, "Process Group Ranks": "[1, 3]", "In msg nelems": 4}
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "record_param_comms",
        "pid": 0,
        "tid": 7,
        "ts": 0,
        "dur": 1,
        "args": args,
    }
    assert only(write(tmp_path / "a.json", document([event]))).comm_args["peer"].tolist() == [1]


def test_peer_copies_name_the_other_gpu(tmp_path):
    args = {"fromDevice": 0, "toDevice": 1, "inDevice": 0, "stream": 7, "bytes": 8}
    event = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)", "pid": 0, "tid": 7, "ts": 0, "dur": 1,
             "args": args}  # fmt: skip
    op = only(write(tmp_path / "a.json", document([event]))).gpu_ops.iloc[0]
    assert (op["kind"], op["direction"], op["peer_device"]) == ("comm", "PtoP", 1)


def test_head_of_a_file(tmp_path):
    header = kineto.peek(
        write(tmp_path / "a.json.gz", document(EVENTS, rank=1, world_size=8, base_ns=10, trace_id="T"))
    )
    assert (header.ranks, header.world_size, header.trace_id, header.start_ns) == ((1,), 8, "T", 510)


def test_python_frames_are_kept_and_of_built_in_functions_the_collection_of_garbage(tmp_path):
    frames = [
        host(1, 9, name="nn.Module: Linear_0", cat="python_function", **{"Python id": 2, "Python parent id": None}),
        host(0, 20, name="train.py(3): step", cat="python_function", **{"Python id": 1, "Python parent id": None}),
        host(2, 3, name="<built-in function linear>", cat="python_function", **{"Python id": 3}),
        host(4, 1, name="<built-in function collect>", cat="python_function", **{"Python id": 4}),
    ]
    found = only(write(tmp_path / "a.json", document([*EVENTS, *frames]))).frames
    assert found["name"].tolist() == ["train.py(3): step", "nn.Module: Linear_0", "gc.collect"]
    assert (found["start_ns"].tolist(), found["end_ns"].tolist()) == ([0, 1_000, 4_000], [20_000, 10_000, 5_000])
    assert found["thread"].tolist() == [1, 1, 1]


def test_values_of_arguments_are_kept_where_shapes_do_not_tell_the_work(tmp_path):
    values = {"Concrete Inputs": ["", "True"], "Input Dims": [[2, 3], []]}
    names = ["aten::_flash_attention_forward", "aten::convolution", "aten::add"]
    events = [host(30 + place, 1, name=name, **values) for place, name in enumerate(names)]
    ops = only(write(tmp_path / "a.json", document([*EVENTS, *events]))).host_ops.set_index("name")
    assert ops["arguments"].astype("object").loc[names].fillna("none").tolist() == ['["", "True"]'] * 2 + ["none"]


def test_stream_waits_are_kept_with_the_call_that_recorded_their_event(tmp_path):
    def wait(start, stream, device=0, name="Stream Wait Event", **args):
        return kernel(start, 1, name=name, cat="cuda_sync", stream=stream, device=device, **args)

    events = [
        kernel(1, 5), host(0, 1, name="cudaEventRecord", cat="cuda_runtime", correlation=31),
        wait(4, 9, wait_on_stream=7, wait_on_cuda_event_record_corr_id=31),
        wait(5, 9, wait_on_stream=-1, wait_on_cuda_event_record_corr_id=-1),
        wait(6, 9, name="Stream Sync"), wait(7, 9, device=1, wait_on_stream=7, wait_on_cuda_event_record_corr_id=31),
    ]  # fmt: skip
    waits = only(write(tmp_path / "a.json", document(events, rank=0))).stream_waits
    assert waits["stream"].tolist() == [9, 9]
    assert waits["source_stream"].fillna(-1).tolist() == [7, -1]
    assert waits["record"].tolist() == [0, -1]
