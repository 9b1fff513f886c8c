"""What only one run does in a step is told first: each kind of it, and what is no more than an outcome is not."""

import dataclasses
import functools

import pandas as pd
import pytest

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import compare
from traceanalyzer.errors import UsageError

RANKS = (0, 1)


def frame(rows):
    """The same rows on both ranks, but for columns that give a value for each."""
    return pd.DataFrame(
        [
            {"rank": rank} | {name: value[rank] if isinstance(value, tuple) else value for name, value in row.items()}
            for row in rows
            for rank in RANKS
        ]
    )


def upload(size, memory="pageable", total_ns=100_000):
    return {"direction": "HtoD", "source_memory": memory, "target_memory": "device", "size_bytes": size,
            "total_ns": total_ns}  # fmt: skip


def product(shape, calls):
    return {"phase": "forward", "product": shape, "dtype": "c10::BFloat16", "calls": calls, "gpu_ns": 1000,
            "calls_beside_comm": 0, "gpu_beside_comm_ns": 0}  # fmt: skip


def call(name, calls):
    return {"name": name, "calls": calls}


MODEL = [product(f"[8, {size}] × [{size}, 8]", 24) for size in (16, 32, 64)]

# Of two steps of 1,000 ns: what the base does, what the other does, and what is told.
CASES = {
    "an upload that is gone": (
        "copies", [upload(4_000_000)], [], "copies a step 2 MB from pageable memory to the GPU | none"),
    "another memory": (
        "copies", [upload(4_000_000)], [upload(4_000_000, "pinned")],
        "copies a step 2 MB from pageable memory to the GPU | 2 MB from pinned memory to the GPU"),
    "an upload that takes no time": ("copies", [upload(4_000, total_ns=2)], [], None),
    "waits of one rank": (
        "cuda_api", [call("cudaStreamSynchronize", (0, 24))], [call("cudaLaunchKernel", 900)],
        "blocking CPU calls per step 12 cudaStreamSynchronize on rank 1 | none"),
    "other launches": ("cuda_api", [call("cudaLaunchKernel", 900)], [call("cudaLaunchKernel", 90)], None),
    "more of one product": (
        "matrix_products", MODEL, [*MODEL, product("[9, 9] × [9, 9]", (0, 80))],
        "matrix products a step none | 40 [9, 9] × [9, 9] bf16 on rank 1"),
    "all products": ("matrix_products", MODEL, [row | {"calls": 12} for row in MODEL], None),
}  # fmt: skip


@functools.cache
def plain(*times):
    """A capture whose steps take these times: analysed once."""
    return capture(steady(*times))


def runs(analysis, base, other):
    """Two captures whose table of that analysis holds these rows."""
    made = []
    for rows in (base, other):
        own = plain(800, 100, 100)
        table = frame(rows or [base[0] | {"size_bytes": 0, "total_ns": 0, "calls": 0, "name": "nothing"}])
        made.append(dataclasses.replace(own, tables={**own.tables, analysis: table}))
    return [side("base", made[0]), side("other", made[1])]


@pytest.mark.parametrize(("analysis", "base", "other", "said"), CASES.values(), ids=CASES)
def test_what_only_one_run_does(analysis, base, other, said):
    line = compare(runs(analysis, base, other)).different.replace("\u202f", " ")
    listed = line.removeprefix("Different: ").split(". ", maxsplit=1)[0]
    assert listed == (said or "No known difference")


def flops(capture, each):
    rows = [{"rank": rank, "step": step, "model_flops": each[rank], "recompute_flops": 0, "covered_pct": 100.0}
            for rank in RANKS for step in capture.steps]  # fmt: skip
    return dataclasses.replace(capture, tables={**capture.tables, "mfu": pd.DataFrame(rows)})


def test_a_run_that_does_more_of_one_product_is_compared():
    base, other = runs("matrix_products", MODEL, [*MODEL, product("[9, 9] × [9, 9]", (0, 80))])
    sides = [side("base", flops(base.first, (100, 100))), side("other", flops(other.first, (100, 900)))]
    made = compare(sides)
    assert "All other matrix products are the same, so steps are compared" in " ".join(made.fairness.notes)


def test_another_amount_of_all_work_is_refused_with_the_line_first():
    base, other = runs("matrix_products", MODEL, [row | {"calls": 48} for row in MODEL])
    sides = [side("base", flops(base.first, (100, 100))), side("other", flops(other.first, (200, 200)))]
    with pytest.raises(UsageError, match=r"^Different: model FLOPs a step "):
        compare(sides)
