"""NVTX ranges: PyTorch's operators told apart from the user's and the libraries' ranges."""

import pytest

from tests.nsys_builders import EPOCH_NS, call, export, kernel, nvtx, read_all, write_sqlite
from traceanalyzer.analyses import run
from traceanalyzer.selection import Selection, select


def read(tmp_path, events):
    (trace,) = read_all(write_sqlite(tmp_path / "report.sqlite", export() | {"NVTX_EVENTS": events}))
    return trace


OPERATORS = (
        ("aten::mm, seq = 123, op_id = 5", "aten::mm", 123, None),
        ("aten::empty, op_id = 4", "aten::empty", None, None),
        ("aten::mm, seq = 0, op_id = 5, sizes = [[8, 512], []], input_op_ids = [(1,0)]", "aten::mm", 0, "[[8,512],[]]"),
        ("AddmmBackward0, seq = 12, op_id = 9", "AddmmBackward0", 12, None),
        ("autograd::engine::evaluate_function: MmBackward0, op_id = 1463",
         "autograd::engine::evaluate_function: MmBackward0", None, None),
        ("detach, op_id = 3", "detach", None, None),
)  # fmt: skip
"""What a range says; the operator's name, its sequence number and shapes."""


def test_operators(tmp_path):
    trace = read(tmp_path, [nvtx(20 * place, 20 * place + 10, text) for place, (text, *_) in enumerate(OPERATORS)])
    assert trace.ranges.empty
    found = trace.host_ops.astype(object).where(trace.host_ops.notna(), None)
    assert list(zip(found["name"], found["sequence"], found["shapes"], strict=True)) == [
        tuple(meant) for _, *meant in OPERATORS
    ]


RANGES = (
    ("step_0", "step_0"),
    ("## backward ##, op_id = 7", "## backward ##"),
    ("DistributedDataParallel.forward, op_id = 17", "DistributedDataParallel.forward"),
    ("nccl:all_reduce, op_id = 8", "nccl:all_reduce"),
    ("forward, op_id = 2", "forward"),
    ("train::step", "train::step"),
    ("epoch 1, batch 2", "epoch 1, batch 2"),
    ("line\nbreak, op_id = 2", "line break"),
)
"""What a range says, and its name."""


def test_ranges(tmp_path):
    trace = read(tmp_path, [nvtx(20 * place, 20 * place + 10, text) for place, (text, _) in enumerate(RANGES)])
    assert trace.host_ops.empty
    assert trace.ranges["name"].tolist() == [name for _, name in RANGES]
    assert trace.ranges["domain"].isna().all()


def test_operators_of_autograd_name_the_forward_thread(tmp_path):
    trace = read(
        tmp_path,
        [
            nvtx(0, 10, "aten::mm, seq = 5, op_id = 1", thread=100),
            nvtx(20, 40, "autograd::engine::evaluate_function: MmBackward0, op_id = 2", thread=101),
            nvtx(22, 38, "MmBackward0, seq = 5, op_id = 3", thread=101),
            nvtx(24, 30, "aten::mm, op_id = 4", thread=101),
        ],
    )
    assert trace.host_ops["forward_thread"].fillna(0).tolist() == [0, 100, 100, 0]


def test_nccl_is_known_by_name_when_its_domain_is_not_named(tmp_path):
    trace = read(tmp_path, [nvtx(0, 5, "ncclReduceScatter", domain=4), nvtx(6, 7, "nccl:reduce, op_id = 1")])
    assert trace.ranges["domain"].astype(object).where(trace.ranges["domain"].notna(), None).tolist() == ["NCCL", None]
    assert trace.comm_args["collective"].tolist() == ["reduce_scatter"]


def test_open_ranges_end_where_the_next_of_their_name_begins_on_their_thread(tmp_path):
    steps = [nvtx(10 * number, None, f"step_{number}") for number in range(3)]
    other = nvtx(15, 18, "step_9", thread=101)
    trace = read(tmp_path, [nvtx(-5, None, "train"), *steps, nvtx(21, 40, "inner"), other])
    ends = trace.ranges.assign(end_ns=trace.ranges["end_ns"] - EPOCH_NS)[["name", "end_ns"]]
    assert dict(ends.itertuples(index=False, name=None)) == {
        "train": 40, "step_0": 10, "step_1": 20, "step_2": 40, "inner": 40, "step_9": 18
    }  # fmt: skip
    assert any("4 NVTX ranges have no end" in note for note in trace.meta.notes)


@pytest.mark.parametrize(("end", "is_partial"), [(2900, False), (None, True)])
def test_a_step_whose_range_has_no_end_is_partial(tmp_path, end, is_partial):
    tables = export()
    kernels, calls, ranges = [], [], [nvtx(-500, None, "NCCL", event=75, domain=1)]
    for number in range(3):
        start = 1000 * number
        ranges += [nvtx(start, start + 900 if number < 2 else end, f"step_{number}")]
        calls.append(call(start + 20, start + 30, correlation=number + 1))
        kernels.append(kernel(start + 50, start + 800, correlation=number + 1, name=6))
    tables |= {"NVTX_EVENTS": ranges, "CUPTI_ACTIVITY_KIND_RUNTIME": calls, "CUPTI_ACTIVITY_KIND_KERNEL": kernels}
    tables |= {"CUPTI_ACTIVITY_KIND_MEMCPY": [], "CUPTI_ACTIVITY_KIND_MEMSET": []}
    (trace,) = read_all(write_sqlite(tmp_path / "a.sqlite", tables))
    assert select(trace, Selection()).steps["is_partial"].tolist() == [False, False, is_partial]


def test_gloos_collectives_are_the_hosts(tmp_path):
    tables = export()
    tables["NVTX_EVENTS"].append(nvtx(10, 90, "gloo:all_reduce, op_id = 9, sizes = [[4]]", thread=333))
    results = run(read_all(write_sqlite(tmp_path / "a.sqlite", tables)), ["host_work"])
    held = results["host_work"].to_frame().query("role == 'collectives'")
    assert held[["what", "name", "calls", "host_ns"]].to_numpy().tolist() == [["collective", "gloo:all_reduce", 1, 80]]
