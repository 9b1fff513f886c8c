"""What other tools write is refused by what it is, with what to give instead."""

import json
import pickle
import sqlite3
from contextlib import closing

import pytest

from tests.builders import document, host, write
from tests.simulator import capture, nsys, run
from tests.simulator import workloads as usual
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
        (NSYS.encode(), "nsys export --type=sqlite"),
        ({"schema": "1.1.1-chakra.0.0.4", "nodes": []}, "execution trace"),
    ],
    ids=["flight recorder", "XLA", "rocprof", "Horovod", "Nsight Systems", "Chakra"],
)
def test_files_of_other_tools_say_what_to_give_instead(tmp_path, content, told):
    assert told.replace("\\", "") in refusal(write(tmp_path / "rank0.json", content))


def test_a_trace_of_a_rank_without_work_is_no_dump(tmp_path):
    trace = document([host(0, 1, name="x", cat="overhead")], rank=0)
    assert "without PyTorch operators" in refusal(write(tmp_path / "rank0.json", trace))


def test_a_folder_of_pickled_dumps_points_to_the_doctor(tmp_path):
    for rank in range(2):
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(DUMP, protocol=2))
    with pytest.raises(InputError, match="doctor --flight-recorder"):
        discover(tmp_path)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rank0.ncu-rep", "Nsight Compute"),
        ("rank0.pftrace", "a Perfetto trace"),
        ("rank0.perfetto-trace", "a Perfetto trace"),
        ("rank0.rpd", "record with rocprofv3"),
        ("rank0.qdstrm", "QdstrmImporter"),
    ],
)
def test_files_that_are_known_by_their_names_say_what_to_give_instead(tmp_path, name, told):
    (tmp_path / name).write_bytes(b"\x0a\x1bnothing")
    with pytest.raises(InputError, match=f"{name}: .*{told}"):
        discover(tmp_path)
    assert told in refusal(tmp_path / name)


def test_a_database_of_rocm_profile_data_is_no_capture_without_gpu_work(tmp_path):
    with closing(sqlite3.connect(tmp_path / "job.rpd")) as connection:
        connection.execute("CREATE TABLE rocpd_op (id INTEGER)")
    assert "rocmProfileData" in refusal(tmp_path / "job.rpd")


def test_an_export_whose_kernels_have_no_names_is_to_be_made_again(tmp_path):
    (report, *_) = nsys.write_reports(capture(run(usual.ddp(2, 1))), tmp_path)
    assert refusal(report) is None
    with closing(sqlite3.connect(report)) as connection:
        connection.execute("DELETE FROM StringIds WHERE id IN (SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL)")
        connection.commit()
    assert "lacks the kernels' names, so that no kernel has a name; export" in refusal(report)
