"""What other tools write is refused by what it is, with what to give instead."""

import json
import sqlite3
from contextlib import closing

import pytest

from tests.builders import document, write
from traceanalyzer.discovery import discover, of_files
from traceanalyzer.errors import InputError, NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, reader_of

DUMP = {"version": "2.10", "pg_config": {"0": {"name": "0", "ranks": "[0, 1]"}}, "entries": [{"record_id": 0}]}
XLA = [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
    {"ph": "X", "pid": 1, "tid": 14, "ts": 100, "dur": 20, "name": "fusion", "args": {"hlo_op": "fusion.2"}},
    {},
]
ROCPROF = [{"ts": "1000", "dur": "40", "pid": "6", "tid": "0", "name": "gemm", "ph": "X", "args": {"BeginNs": "1"}}, {}]
HOROVOD = json.dumps([{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1}])[:-1] + ",\n"
PROTON = {"displayTimeUnit": "us", "traceEvents": [
    {"args": {"call_stack": ["ROOT", "gemm"]}, "cat": "kernel", "dur": 8, "name": "gemm", "ph": "X", "pid": 0, "tid": 7, "ts": 1},
]}  # fmt: skip
HATCHET = [{"children": [], "frame": {"name": "gemm"}, "metrics": {"count": 1, "device_type": "CUDA", "time (ns)": 9}}]
RPD = [{}, {"pid": "0", "tid": "0", "name": "gemm", "ts": "1.5", "dur": "8", "ph": "X", "args": {"desc": "Kernel"}}]
PLUGIN = '[\n{"name": "AllReduce", "cat": "COLL", "ph": "b", "ts": 7, "args": {"SeqNum": 0, "CommHash": 673}},\n{}]\n'
INSPECTOR = '{"header": {"rank": 0}, "coll_perf": {"coll": "AllReduce", "coll_sn": 1}}\n' * 2
ASCEND = [
    {"name": "process_name", "ph": "M", "pid": 3, "args": {"name": "Ascend Hardware"}},
    {"name": "aten::mm", "ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 2},
    {"name": "MatMulV2", "ph": "X", "pid": 3, "tid": 5, "ts": 1, "dur": 2, "args": {"Task Type": "AI_CORE"}},
]
NEURON = {"instruction": [{"opcode": "MATMUL", "timestamp": 1, "duration": 2, "bir_instruction_name": "I-1"}]}
TF1 = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/job:localhost/replica:0/task:0/device:GPU:0"}},
       {"ph": "X", "cat": "Op", "pid": 1, "tid": 0, "ts": 1, "dur": 2, "name": "MatMul"}]  # fmt: skip
NSYS2JSON = [{"name": "gemm", "ph": "X", "cat": "cuda", "ts": 1, "dur": 2, "tid": "Stream 7", "pid": "Device 0"}]
NSYS = '{"data": ["NVIDIA"], "id": 1}\n{"Type": 79, "CudaEvent": {"startNs": "120"}}\n'


def refusal(path):
    """Why a file is no trace, when it is looked at or when it is read."""
    try:
        of_files([path])
        list(reader_of(path).read(path, RankHint(0, "test"), KindRules()))
    except (InputError, NotATraceError) as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (DUMP, "doctor --flight-recorder"),
        ({"traceEvents": XLA}, r"give the \.xplane\.pb file"),
        ({"traceEvents": ROCPROF}, "record with rocprofv3"),
        (HOROVOD.encode(), "timeline of Horovod"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "git lfs pull"),
        (b"<!DOCTYPE html><html><title>Sign in</title></html>", "a web page"),
        (NSYS.encode(), "nsys export --type=sqlite"),
        (PROTON, "Triton's Proton"),
        (HATCHET, "Triton's Proton"),
        (RPD, "Chrome trace of rocmProfileData"),
        (PLUGIN.encode(), "NCCL's profiler plugin"),
        (INSPECTOR.encode(), "doctor --monitor"),
        (ASCEND, "Ascend's profiler"),
        (NEURON, "AWS Neuron"),
        ({"traceEvents": TF1}, "TensorFlow 1"),
        (NSYS2JSON, "made from a report of Nsight Systems"),
        ([[1, 2], [[0, 1], [1, 2]]], "a memory timeline"),
        ([[1700000000, "CREATE", 512, 0]], "a memory timeline"),
        ({"segments": [], "device_traces": [[]]}, "a memory snapshot"),
        ({"schema": "1.1.1-chakra.0.0.4", "nodes": []}, "execution trace"),
        (b'{"traceEvents": [' + json.dumps(XLA[0]).replace("GPU", "TPU").encode() + b", {}]}", "on TPUs"),
    ],
)
def test_files_of_other_tools_say_what_to_give_instead(tmp_path, content, told):
    assert told.replace("\\", "") in refusal(write(tmp_path / "rank0.json", content))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rank0.ncu-rep", "Nsight Compute"),
        ("rank0.pftrace", "a Perfetto trace"),
        ("rank0.pftrace.gz", "a Perfetto trace"),
        ("rank0.perfetto-trace", "a Perfetto trace"),
        ("rank0.hatchet", "Triton's Proton"),
        ("rank0.ntff", "AWS Neuron"),
        ("rank0.rpd", "record with rocprofv3"),
        ("rank0.qdstrm", "QdstrmImporter"),
    ],
)
def test_files_that_are_known_by_their_names_say_what_to_give_instead(tmp_path, name, told):
    (tmp_path / name).write_bytes(b"\x0a\x1bnothing")
    with pytest.raises(InputError, match=f"{name}: .*{told}"):
        discover(tmp_path)
    assert told in refusal(tmp_path / name)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("rocpd_api_ops", "rocmProfileData"),
        ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "nvprof"),
        ("CANN_API", "Ascend's profiler"),
    ],
)
@pytest.mark.parametrize("name", ["job.sqlite", "job.db", "job.rpd", "job.nvvp"])
def test_databases_of_other_tools_are_known_by_their_tables(tmp_path, name, table, told):
    with closing(sqlite3.connect(tmp_path / name)) as connection:
        connection.execute(f"CREATE TABLE {table} (start INTEGER)")
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, copyKind INT)")
        connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 2, 0, 1)")
        connection.commit()
    assert told in refusal(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "begin", "told"),
    [
        ("1_kernel_trace.csv", '"Kind","Agent_Id","Queue_Id"', "rocprofv3 --output-format json"),
        ("results.csv", '"Index","KernelName","gpu-id"', "rocprof (version 1 or 2)"),
        ("job.csv", "==12== NVPROF is profiling process 12", "nvprof"),
        ("job_cuda_gpu_trace.csv", "Start (ns),Duration (ns),CorrId", "nsys stats"),
        ("rank0.html", "<html><head><title>GPU Memory Timeline HTML</title>", "a memory timeline"),
        ("host-pid7.log", INSPECTOR, "doctor --monitor"),
        ("ncclProfiler_7_0.txt", PLUGIN, "NCCL's profiler plugin"),
        ("trace.txt", json.dumps(document([], rank=0)), "a name that ends in .json"),
    ],
)
def test_files_of_a_folder_without_traces_are_known_by_their_begin(tmp_path, name, begin, told):
    (tmp_path / name).write_text(begin)
    with pytest.raises(InputError) as error:
        discover(tmp_path)
    assert told in str(error.value)
