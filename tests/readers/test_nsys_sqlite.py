"""Nsight Systems databases: what the tables of a rank hold, whatever the schema's version left out."""

import shutil
import sqlite3
from contextlib import closing
from itertools import count

import pytest

from tests.nsys_builders import (
    EPOCH_NS,
    call,
    export,
    gid,
    kernel,
    memcpy,
    read_all,
    without,
    write_sqlite,
)
from traceanalyzer.errors import NotATraceError
from traceanalyzer.model.schema import TABLES
from traceanalyzer.readers import nsys
from traceanalyzer.readers.nsys.source import SqliteSource

FILES = [(nsys, lambda folder: write_sqlite(folder / "a.sqlite", export()))]


@pytest.fixture
def read(tmp_path):
    number = count()
    return lambda tables, **more: read_all(write_sqlite(tmp_path / f"report{next(number)}.sqlite", tables), **more)


def rows(frame, *columns):
    plain = frame[list(columns)].astype(object)
    return list(plain.where(plain.notna(), None).itertuples(index=False, name=None))


def test_every_kind_of_operation(read):
    (trace,) = read(export())
    assert rows(trace.gpu_ops.assign(start_ns=trace.gpu_ops["start_ns"] - EPOCH_NS), "start_ns", "name", "kind",
                "activity", "stream", "bytes", "direction", "source_memory", "grid", "launch") == [
        (50, "Memcpy HtoD (Pinned -> Device)", "copy", "memcpy", 7, 4096, "HtoD", "pinned", None, 0),
        (70, "Memset (Device)", "copy", "memset", 7, 64, None, None, None, 1),
        (100, "gemm", "compute", "kernel", 7, None, None, None, "8x2x1", 2),
        (210, "ncclDevKernel_AllReduce(args)", "comm", "kernel", 9, None, None, None, "8x2x1", 3),
    ]  # fmt: skip
    assert rows(trace.api_calls, "name", "thread") == [
        ("cudaMemcpyAsync", 100), ("cudaMemsetAsync", 100), ("cudaLaunchKernel", 100), ("cudaLaunchKernel", 100),
    ]  # fmt: skip
    assert rows(trace.host_ops, "name", "sequence") == [("aten::mm", 7)]
    assert rows(trace.ranges, "name", "domain") == [("step_0", None), ("ncclAllReduce", "NCCL")]
    assert rows(trace.comm_args, "collective", "size_bytes", "group") == [("all_reduce", None, None)]


def test_meta_of_a_whole_export(read):
    (trace,) = read(export())
    meta = trace.meta
    assert (meta.rank, meta.rank_source, meta.format, meta.device, meta.process) == (0, "test", "nsys", 0, 100)
    assert meta.device_name == "NVIDIA H200"
    assert meta.versions == {"nsys": "2025.3.2.0"}
    assert (meta.capture_start_ns, meta.capture_end_ns) == (EPOCH_NS, EPOCH_NS + 1000)


@pytest.mark.parametrize(
    "table", [name for name in export() if name not in ("CUPTI_ACTIVITY_KIND_KERNEL", "StringIds")]
)
def test_any_table_but_the_kernels_and_their_names_may_be_absent(read, table):
    (trace,) = read(without(export(), table))
    assert (trace.gpu_ops["activity"] == "kernel").sum() == 2
    for name, schema in TABLES.items():
        assert list(trace.table(name).columns) == list(schema)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "no CUDA API calls"),
        ("NVTX_EVENTS", "no NVTX ranges"),
        ("TARGET_INFO_SESSION_START_TIME", "no UTC start"),
    ],
)
def test_what_is_absent_is_said(read, table, sentence):
    (trace,) = read(without(export(), table))
    assert any(sentence in note for note in trace.meta.notes)
    (whole,) = read(export())
    assert not any(sentence in note for note in whole.meta.notes)


def test_kernels_without_any_name_are_refused(read):
    """Else all communication would be compute."""
    with pytest.raises(NotATraceError, match="no table StringIds, so that no kernel has a name"):
        read(without(export(), "StringIds"))


def test_operations_of_no_process_are_said(read):
    tables = export()
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        tables = without(tables, table, "globalPid")
    tables["CUPTI_ACTIVITY_KIND_KERNEL"][0]["deviceId"] = 1
    traces = read(tables)
    assert len(traces) == 2
    for trace in traces:
        assert any(note.startswith("The export does not say which process") for note in trace.meta.notes)
        assert not any("drives" in note for note in trace.meta.notes)
    (whole,) = read(export())
    assert not any("which process" in note for note in whole.meta.notes)


OPTIONAL = [
    (table, column)
    for table, kept in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", {"start", "end", "globalPid"}),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", {"start", "end", "globalPid"}),
        ("CUPTI_ACTIVITY_KIND_MEMSET", {"start", "end", "globalPid"}),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "end", "globalTid"}),
        ("NVTX_EVENTS", {"start", "eventType", "globalTid"}),
    )
    for column in export()[table][0]
    if column not in kept
]


ALL_OF_A_TABLE = [
    (table, tuple(column for of, column in OPTIONAL if of == table and column not in ("shortName", "mangledName")))
    for table in dict.fromkeys(of for of, _ in OPTIONAL)
]
ONE = [pytest.param(table, (column,), marks=pytest.mark.thorough) for table, column in OPTIONAL]


@pytest.mark.parametrize(("table", "columns"), [*ALL_OF_A_TABLE, *ONE])
def test_any_column_may_be_absent(read, table, columns):
    (trace,) = read(without(export(), table, *columns))
    assert len(trace.gpu_ops) == 4
    assert (trace.gpu_ops["end_ns"] - trace.gpu_ops["start_ns"]).tolist() == [10, 5, 100, 50]
    assert len(trace.api_calls) == 4


def test_a_schema_of_2022(read):
    """Without green contexts, graph nodes, memory kind of memsets, device ids of copies, registered strings, blobs."""
    tables = without(export(), "CUPTI_ACTIVITY_KIND_KERNEL", "greenContextId", "graphNodeId", "mangledName")
    tables = without(tables, "CUPTI_ACTIVITY_KIND_MEMCPY", "srcDeviceId", "dstDeviceId", "graphNodeId")
    tables = without(tables, "CUPTI_ACTIVITY_KIND_MEMSET", "memKind", "graphNodeId")
    tables = without(tables, "NVTX_EVENTS", "binaryData", "endGlobalTid")
    tables = without(without(tables, "ANALYSIS_DETAILS"), "META_DATA_EXPORT")
    (trace,) = read(tables)
    assert trace.gpu_ops["name"].tolist() == [
        "Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "gemm", "ncclDevKernel_AllReduce(args)",
    ]  # fmt: skip
    assert trace.gpu_ops["graph_node"].isna().all()
    assert trace.comm_args["collective"].tolist() == ["all_reduce"]


def test_rows_in_any_order_give_the_same_tables(read):
    tables = export()
    (first,) = read(tables)
    (second,) = read({name: rows[::-1] for name, rows in tables.items()})
    for name in TABLES:
        assert first.table(name).astype(object).equals(second.table(name).astype(object)), name


def test_colliding_correlations_join_within_their_process(read):
    tables = export() | {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 200, process=100), kernel(300, 400, process=200, device=1)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call(290, 295, process=200, thread=201), call(90, 95, process=100, thread=101),
        ],
    }  # fmt: skip
    traces = read(tables)
    assert [trace.rank for trace in traces] == [0, 1]
    assert [trace.api_calls["thread"].tolist() for trace in traces] == [[101], [201]]
    for trace in traces:
        of_kernel = trace.gpu_ops[trace.gpu_ops["activity"] == "kernel"]
        call_start = trace.api_calls["start_ns"].iloc[of_kernel["launch"].iloc[0]]
        assert of_kernel["start_ns"].iloc[0] - call_start == 10


def test_one_process_with_two_gpus_is_two_ranks_that_share_its_calls(read):
    tables = export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"].append(kernel(500, 600, device=1, correlation=5))
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"].append(call(490, 495, correlation=5))
    first, second = read(tables)
    assert (first.meta.device, second.meta.device) == (0, 1)
    assert (len(first.gpu_ops), len(second.gpu_ops)) == (4, 1)
    assert len(first.api_calls) == len(second.api_calls) == 5
    assert second.gpu_ops["launch"].tolist() == [4]
    assert any("drives 2 GPUs" in note for note in second.meta.notes)
    assert all(trace.api_calls["has_gpu_op"].all() for trace in (first, second))


def test_names_that_are_not_utf8(tmp_path):
    path = write_sqlite(tmp_path / "report.sqlite", export())
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE NVTX_EVENTS SET text = CAST(x'73746570ff' AS TEXT) WHERE text = 'step_0'")
        database.execute("UPDATE StringIds SET value = CAST(x'67656d6dff' AS TEXT) WHERE value = 'gemm'")
        database.commit()
    (trace,) = read_all(path)
    assert "step\N{REPLACEMENT CHARACTER}" in trace.ranges["name"].tolist()
    assert "gemm\N{REPLACEMENT CHARACTER}" in trace.gpu_ops["name"].tolist()


def test_a_cuda_graph_recorded_whole_is_busy_and_said(read):
    graph = {"start": 400, "end": 900, "deviceId": 0, "streamId": 7, "correlationId": 9, "globalPid": gid(100),
             "graphId": 3, "graphExecId": 4}  # fmt: skip
    tables = export() | {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [graph]}
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"].append(call(390, 395, correlation=9))
    (trace,) = read(tables)
    last = trace.gpu_ops.iloc[-1]
    assert (last["name"], last["activity"], last["kind"], last["launch"]) == ("CUDA graph 3", "graph", "unknown", 4)
    (note,) = [note for note in trace.meta.notes if "CUDA graph" in note]
    assert "1 CUDA graph launches (0.001 ms)" in note
    assert "--cuda-graph-trace=node" in note


def test_nodes_of_a_cuda_graph_share_their_launch(read):
    nodes = [kernel(100 + 10 * node, 105 + 10 * node, graphNodeId=(2 << 32) + node) for node in range(3)]
    (trace,) = read(export() | {"CUPTI_ACTIVITY_KIND_KERNEL": nodes})
    kernels = trace.gpu_ops[trace.gpu_ops["activity"] == "kernel"]
    assert kernels["graph_node"].tolist() == [(2 << 32) + node for node in range(3)]
    assert len(set(kernels["launch"])) == 1


COPIES = (
    ({"kind": 2, "memories": (2, 0)}, "Memcpy DtoH (Device -> Pageable)", "copy", None),
    ({"kind": 8, "memories": (2, 2)}, "Memcpy DtoD (Device -> Device)", "copy", None),
    ({"kind": 10, "memories": (2, 2), "srcDeviceId": 0, "dstDeviceId": 3}, "Memcpy PtoP (Device -> Device)", "comm", 3),
    ({"kind": 10, "memories": (2, 2), "srcDeviceId": 3, "dstDeviceId": 0}, "Memcpy PtoP (Device -> Device)", "comm", 3),
    ({"kind": 1, "memories": (4, 2)}, "Memcpy HtoD (Managed -> Device)", "copy", None),
    ({"kind": 99, "memories": (None, 7)}, "Memcpy Unknown (Unknown -> Unknown)", "copy", None),
)
"""What is recorded of a copy; its name, its kind and the other device."""


def test_copies(read):
    recorded = [memcpy(10 * place, 10 * place + 1, **how) for place, (how, *_) in enumerate(COPIES)]
    (trace,) = read(export() | {"CUPTI_ACTIVITY_KIND_MEMCPY": recorded})
    copies = trace.gpu_ops[trace.gpu_ops["activity"] == "memcpy"]
    assert rows(copies, "name", "kind", "peer_device") == [tuple(meant) for _, *meant in COPIES]


def test_nothing_is_written_beside_the_file(tmp_path):
    path = write_sqlite(tmp_path / "report #1?.sqlite", export())
    before = (path.stat().st_mtime_ns, sorted(tmp_path.iterdir()))
    assert len(read_all(path)) == 1
    assert (path.stat().st_mtime_ns, sorted(tmp_path.iterdir())) == before


def test_an_export_without_gpu_operations_is_of_the_host_alone(tmp_path):
    tables = {name: rows for name, rows in export().items() if not name.startswith("CUPTI")}
    path = write_sqlite(tmp_path / "cpu.sqlite", tables)
    (trace,) = read_all(path)
    assert (trace.meta.is_host_only, trace.meta.device, len(trace.gpu_ops)) == (True, None, 0)
    assert len(trace.ranges)
    assert nsys.peek(path).ranks is None


def test_a_damaged_database(tmp_path):
    whole = write_sqlite(tmp_path / "whole.sqlite", export())
    cut = tmp_path / "cut.sqlite"
    shutil.copy(whole, cut)
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(NotATraceError, match=r"cut\.sqlite"):
        read_all(cut)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT * FROM o, c",
        "CREATE TABLE NVTX_EVENTS (start, end, eventType, globalTid, text AS (hex(zeroblob(400000000)) || start))",
    ],
)
def test_what_nobody_stored_is_not_read(tmp_path, statement):
    path = write_sqlite(tmp_path / "a.sqlite", export())
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE NVTX_EVENTS RENAME TO o")
        database.execute(statement)
        if "GENERATED" in statement:
            database.execute("INSERT INTO NVTX_EVENTS SELECT start, end, eventType, globalTid FROM o")
        database.commit()
    (trace,) = read_all(path)
    assert len(trace.gpu_ops) == 4
    assert trace.ranges["name"].str.len().max() < 100 or trace.ranges.empty


def test_stream_waits_name_the_stream_and_the_call_of_the_event_that_they_wait_for(read):
    def wait(start, event, occasion, *, context=1, sync=2, process=100):
        return {"start": start, "end": start + 1, "deviceId": 0, "contextId": context, "streamId": 9, "syncType": sync,
                "globalPid": gid(process), "eventId": event, "eventSyncId": occasion}  # fmt: skip

    def event(event, occasion, stream, correlation, process=100):
        return {"deviceId": 1, "streamId": stream, "correlationId": correlation, "globalPid": gid(process),
                "eventId": event, "eventSyncId": occasion}  # fmt: skip

    contexts = [{"processId": 100, "contextId": context, "deviceId": context - 1} for context in (1, 2)]
    tables = export() | {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 200), kernel(100, 200, device=1, correlation=4)],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
            wait(10, 5, 1), wait(11, 5, 2), wait(12, 5, 3), wait(13, 5, 1, context=2), wait(14, 5, 1, sync=1),
        ],
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": [event(5, 1, 7, 1), event(5, 2, 8, 4), event(5, 3, 8, 99, process=101)],
        "TARGET_INFO_CUDA_CONTEXT_INFO": contexts,
    }  # fmt: skip
    first, second = read(tables)
    waits = first.stream_waits
    assert waits["start_ns"].sub(EPOCH_NS).tolist() == [10, 11, 12]
    assert waits["source_stream"].fillna(-1).tolist() == [7, 8, -1], "an event of another process is another event"
    assert first.api_calls["correlation"].iloc[waits["record"].iloc[:2]].tolist() == [1, 4]
    assert waits["record"].iloc[2] == -1
    assert second.stream_waits["start_ns"].sub(EPOCH_NS).tolist() == [13]


@pytest.mark.parametrize(
    ("named", "unnamed", "ranks", "lost"),
    [
        ([(1, 0), (2, 1)], {"deviceId": None}, [2, 1], 0),
        ([(1, 0), (2, 1)], {"deviceId": -3}, [2, 1], 0),
        ([(1, 0), (2, 1)], {"globalPid": None}, [2, 1], 0),
        ([(1, 0), (1, 1)], {"deviceId": None}, [1, 1], 1),
        ([(1, 0), (2, 0)], {"globalPid": None}, [1, 1], 1),
        ([(1, 0), (2, 1)], {"globalPid": None, "deviceId": None}, [1, 1], 1),
        ([], {"globalPid": None, "deviceId": None}, [1], 0),
    ],
    ids=["no GPU", "no such GPU", "no process", "one of two GPUs", "one of two processes", "neither", "only such"],
)
def test_operations_without_a_place_make_no_rank(read, named, unnamed, ranks, lost):
    """They are of the only place that they can be of; else they are left out, and said."""
    told = [
        kernel(100 * row, 100 * row + 50, process=process, device=device) for row, (process, device) in enumerate(named)
    ]
    tables = {**export(), "CUPTI_ACTIVITY_KIND_KERNEL": [*told, kernel(500, 550, process=1) | unnamed]}
    found = read(without(without(tables, "CUPTI_ACTIVITY_KIND_MEMCPY"), "CUPTI_ACTIVITY_KIND_MEMSET"))
    assert [len(trace.gpu_ops) for trace in found] == ranks
    said = f"{lost} GPU operations of the export do not say which GPU or process they are of"
    assert any(said in note for note in found[0].meta.notes) == bool(lost)


@pytest.mark.parametrize(("end", "content"), [("-wal", bytes(33)), ("-journal", bytes.fromhex("d9d505f920a163d7"))])
def test_a_database_that_is_not_whole_without_what_lies_beside_it_is_refused(tmp_path, end, content):
    path = write_sqlite(tmp_path / "report.sqlite", export())
    beside = path.with_name(path.name + end)
    beside.write_bytes(b"")
    assert SqliteSource(path).tables
    beside.write_bytes(content)
    with pytest.raises(NotATraceError, match=beside.name):
        nsys.peek(path)
