"""What differs on a rank that computes longer is told beside its lateness."""

from types import MappingProxyType, SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.findings.stragglers.stragglers import other_work

MS = 1_000_000
EFFICIENCY = ["rank", "operator", "family", "element_type", "calls", "flops", "gpu_ns"]
BEFORE = [(0, "mm", "gemm", "bf16", 9, 10, 60), (0, "add", "element-wise", "fp32", 9, None, 20)]
OTHERS = [*BEFORE, *((2, *row[1:]) for row in BEFORE)]


class Rows(SimpleNamespace):
    def __len__(self):
        return len(self.frame)

    def to_frame(self):
        return self.frame


def told(own, flops=(5, 5, 5), pipelines=0, *, limits=MappingProxyType({}), **changed):
    rows = [(*row[:-1], row[-1] * MS) for row in [*OTHERS, *own]]
    efficiency = Rows(frame=pd.DataFrame(rows, columns=EFFICIENCY))
    mfu = Rows(frame=pd.DataFrame({"rank": [0, 1, 2], "step": 3, "model_flops": flops, "recompute_flops": 0}))
    row = {"ranks": "1", "numbers": "3,4", "cause": "compute", "same_work_ratio": None, "name": None, "own_ns": 120 * MS,
           "peers_ns": 80 * MS, "is_in_every_step": True, "gain_ns": 40 * MS, "step_ns": 130 * MS, "together": None,
           "joint_gain_ns": None, "joint_unprofiled_gain_ns": None, "unprofiled_gain_ns": None, "gain_is_bound": False,
           "own_host_ns": None, "peers_host_ns": None, "apart_host_ns": None, "steps": 3, "episode": 0,
           "set": "rank", "place": None, "gain_is_of_capture": False} | changed  # fmt: skip
    found = other_work(SimpleNamespace(worth_pct=1.0, rows=lambda: [row]), efficiency, mfu, [0] * pipelines, **limits)
    assert all("rank 1" in one.recommendation for one in found), "what to do first names whom"
    return [(one.title.replace("\u202f", " "), one.gain_ns) for one in found]


ADD = (1, "add", "element-wise", "fp32", 9, None, 20)


@pytest.mark.parametrize(
    ("own", "flops", "says"),
    [
        (
            [(1, "mm", "gemm", "tf32", 9, 10, 100), ADD],
            (5, 5, 5),
            "Rank 1's matrix products run in TF32, the others' in bf16: 100 ms in the capture, and 60 ms.",
        ),
        (
            [(1, "mm", "gemm", "bf16", 9, 15, 100), ADD],
            (5, 8, 5),
            (
                "Rank 1's operators do 8 FLOP a step, the others' 5 FLOP, in as many matrix products: their inputs "
                "are 1.60 times as large."
            ),
        ),
        (
            [(1, "mm", "gemm", "bf16", 14, 15, 100), ADD],
            (5, 8, 5),
            "Rank 1's operators do 8 FLOP a step, the others' 5 FLOP, 1.60 times as much.",
        ),
        (
            [(1, "mm", "gemm", "bf16", 9, 10, 60), (1, "sort", "other", None, 9, None, 60)],
            (5, 5, 5),
            "Rank 1 runs sort, which no other rank runs (60 ms in the capture); the others run add instead.",
        ),
    ],
    ids=["number format", "larger inputs", "more products", "other operators"],
)
def test_what_differs_is_told(own, flops, says):
    assert told(own, flops) == [(says, 40 * MS)]


@pytest.mark.parametrize(
    ("own", "flops", "changed"),
    [
        ([(1, "mm", "gemm", "tf32", 9, 10, 61), (1, "add", "element-wise", "fp32", 9, None, 60)], (5, 5, 5), {}),
        ([(1, "mm", "gemm", "bf16", 9, 16, 100), ADD], (5, 5.5, 5), {}),
        (
            [(1, "mm", "gemm", "bf16", 9, 10, 60), ADD, (1, "sort", "other", None, 9, None, 40)],
            (5, 5, 5),
            {"name": "x"},
        ),
        ([(1, "mm", "gemm", "tf32", 9, 10, 100), ADD], (5, 5, 5), {"same_work_ratio": 1.3}),
        ([(1, "mm", "gemm", "tf32", 9, 10, 100), ADD], (5, 5, 5), {"cause": "host"}),
        ([(1, "mm", "gemm", "tf32", 9, 10, 100), ADD], (5, 5, 5), {"pipelines": 1}),
    ],
    ids=["takes hardly longer", "a little more", "has a name", "the same work", "the host", "a pipeline"],
)
def test_what_explains_less_than_half_is_not(own, flops, changed):
    assert told(own, flops, **changed) == []


@pytest.mark.parametrize(
    ("own", "changed", "is_said"),
    [
        ((9, 10, 100), {}, True),  # of 120 ms 48 ms longer
        ((9, 10, 71), {}, False),
        ((11, 10, 100), {}, False),  # each is smaller
    ],
    ids=[
        "all",
        "less than half",
        "smaller",
    ],
)
def test_products_that_do_fewer_flops_a_second_are_told(own, changed, is_said):
    found = told([(1, "mm", "gemm", "bf16", *own), ADD], **changed)
    said = [title for title, _ in found]
    assert any("matrix products run at" in title for title in said) is is_said
    if is_said:
        assert said[0].startswith("Rank 1's matrix products run at ")
        assert said[0].endswith(", the others' at 0.000000000167 TFLOP/s, and are no smaller.")
