"""rocprofv3's JSON files and rocpd databases: the same process gives the same tables."""

import gzip
import json

import pytest

from tests import rocprof_builders as build
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, reader_of, rocpd, rocprofv3
from traceanalyzer.selection import Selection, select

WRITERS = {
    "json": lambda folder, records: build.write_json(folder / "55_results.json", records),
    "rocpd, schema 3": lambda folder, records: build.write_database(folder / "55_results.db", records),
    "rocpd, a later schema": lambda folder, records: build.write_database(
        folder / "55_results.db", records, later=True
    ),
}

FILES = [
    (rocprofv3, lambda folder: WRITERS["json"](folder, build.buffers())),
    (rocpd, lambda folder: WRITERS["rocpd, schema 3"](folder, build.buffers())),
]


@pytest.fixture(params=WRITERS)
def written(request, tmp_path):
    return WRITERS[request.param](tmp_path, build.buffers())


def read(path, rank=3):
    return list(reader_of(path).read(path, RankHint(rank, "path"), KindRules()))


def test_a_process_on_one_gpu_is_one_rank(written):
    (trace,) = read(written)
    assert (trace.rank, trace.meta.rank_source, trace.meta.process) == (3, "path", 55)
    assert (trace.meta.device, trace.meta.device_name) == (0, "AMD Instinct MI300X")
    assert trace.meta.capture_end_ns - trace.meta.capture_start_ns == 1990


OPERATIONS = {
    "start_ns": [400, 500, 710, 720, 760],
    "end_ns": [500, 700, 720, 760, 800],
    "kind": ["compute", "comm", "copy", "copy", "comm"],
    "activity": ["kernel", "kernel", "memset", "memcpy", "memcpy"],
    "stream": [3, 5, 3, 3, 3],
    "launch": [0, 1, 2, 2, 3],
}


def test_operations(written):
    (trace,) = read(written)
    assert {column: trace.gpu_ops[column].tolist() for column in OPERATIONS} == OPERATIONS


def test_copies_are_named_as_pytorch_names_them(written):
    (trace,) = read(written)
    upload, peer = trace.gpu_ops.iloc[3], trace.gpu_ops.iloc[4]
    assert (upload["name"], upload["direction"], upload["bytes"]) == ("Memcpy HtoD (Host -> Device)", "HtoD", 4096)
    assert (peer["name"], peer["direction"], peer["peer_device"]) == ("Memcpy PtoP (Device -> Device)", "PtoP", 1)


def test_calls_ranges_and_collectives_come_from_the_host_records(written):
    (trace,) = read(written)
    assert trace.api_calls["name"].tolist()[::4] == ["hipLaunchKernel", "hipStreamSynchronize"]
    assert trace.ranges[["name", "domain"]].to_numpy().tolist() == [["step_0", "roctx"], ["ncclAllReduce", "RCCL"]]
    assert trace.comm_args["collective"].tolist() == ["all_reduce"]
    assert select(trace, Selection()).op_step.tolist() == [0, 0, 0, 0, 0]


def test_a_rank_for_each_gpu_of_a_process(tmp_path):
    records = build.buffers()
    records["kernel_dispatch"].append(build.kernel(2, 600, 650, 1, agent=build.SECOND_GPU))
    traces = read(build.write_json(tmp_path / "a.json", records))
    assert [(trace.rank, trace.meta.device, len(trace.gpu_ops)) for trace in traces] == [(3, 0, 5), (4, 1, 1)]
    assert traces[1].meta.rank_source == "order of GPUs in one file"


def test_a_copy_by_a_kernel_is_a_copy_of_unknown_direction(tmp_path):
    records = build.buffers() | {"kernel_dispatch": [build.kernel(4, 10, 20, 1)], "memory_copy": []}
    (trace,) = read(build.write_json(tmp_path / "a.json", records))
    assert (trace.gpu_ops["kind"][0], trace.gpu_ops["direction"].isna()[0]) == ("copy", True)


def test_without_streams_the_queue_is_the_stream(tmp_path):
    records = build.buffers() | {"kernel_dispatch": [build.kernel(2, 10, 20, 1, stream=None)], "memory_copy": []}
    (trace,) = read(build.write_json(tmp_path / "a.json", records))
    assert trace.gpu_ops["stream"].tolist() == [9]


def test_what_was_not_recorded_is_said(tmp_path):
    records = build.buffers() | {"hip_api": [], "marker_api": [], "rccl_api": []}
    (trace,) = read(build.write_json(tmp_path / "a.json", records))
    assert [word for note in trace.meta.notes for word in note.split() if word.startswith("(--")] == [
        "(--hip-trace):", "(--marker-trace):",
    ]  # fmt: skip


def test_nothing_of_the_host_is_kept(written):
    (trace,) = read(written)
    kept = [repr(trace.meta), *(trace.table(name).to_csv() for name in ("gpu_ops", "api_calls", "ranges", "frames"))]
    assert build.SECRET not in "".join(kept)


@pytest.mark.parametrize(("name", "reader"), [("a.json", rocprofv3), ("a.json.gz", rocprofv3)])
def test_files_are_told_by_their_first_bytes(tmp_path, name, reader):
    plain = build.write_json(tmp_path / "plain.json", build.buffers()).read_bytes()
    path = tmp_path / name
    path.write_bytes(gzip.compress(plain) if name.endswith(".gz") else plain)
    assert reader_of(path) is reader
    assert len(read(path)) == 1


def test_a_cut_file_gives_its_whole_records_and_says_so(tmp_path):
    path = build.write_json(tmp_path / "a.json", build.buffers())
    whole = read(path)[0]
    path.write_bytes(path.read_bytes()[:-40])
    (trace,) = read(path)
    assert trace.meta.is_truncated
    assert len(trace.gpu_ops) == len(whole.gpu_ops) - 1


def test_an_odd_record_costs_no_other(tmp_path):
    path = build.write_json(tmp_path / "a.json", build.buffers())
    content = json.loads(path.read_text())
    content["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"][0]["start_timestamp"] = "soon"
    path.write_text(json.dumps(content))
    (trace,) = read(path)
    assert (len(trace.gpu_ops), trace.meta.events_skipped) == (4, 1)


def test_a_cut_head_and_an_empty_file_are_refused_with_what_to_do(tmp_path):
    path = build.write_json(tmp_path / "a.json", build.buffers())
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(NotATraceError, match="written whole when the program ends"):
        read(path)
    path.write_text(json.dumps({"rocprofiler-sdk-tool": []}))
    with pytest.raises(NotATraceError, match="--kernel-trace"):
        read(path)
    database = build.write_database(tmp_path / "a.db", build.buffers() | {"kernel_dispatch": [], "memory_copy": []})
    assert reader_of(database) is rocpd
    with pytest.raises(NotATraceError, match="--kernel-trace"):
        read(database)
