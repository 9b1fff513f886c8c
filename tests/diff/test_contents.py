"""What only one run does in a step is told first: each kind of it, and what is no more than an outcome is not."""

import dataclasses
import functools

import pandas as pd
import pytest

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import compare
from traceanalyzer.errors import UsageError
from traceanalyzer.report.comparison import sentences

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


def host_range(name, host_ns):
    return {"role": "main", "what": "range", "name": name, "host_ns": host_ns}


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
        "calls in which the host waits for the GPU, a step 12 cudaStreamSynchronize on rank 1 | none"),
    "other launches": ("cuda_api", [call("cudaLaunchKernel", 900)], [call("cudaLaunchKernel", 90)], None),
    "a range of the user's": (
        "host_work", [host_range("tokenize", 800)], [], "host ranges a step tokenize 400 ns | none"),
    "a shorter range": (
        "host_work", [host_range("data", 800)], [host_range("data", 80)],
        "host ranges a step data 400 ns | data 40 ns"),
    "a range that is as long as noise": ("host_work", [host_range("data", 800)], [host_range("data", 790)], None),
    "ranges of phases, parts and libraries": (
        "host_work", [host_range(name, 900) for name in ("forward", "block_3", "FSDP::pre_forward")], [], None),
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
        table = frame(rows or [base[0] | {"size_bytes": 0, "total_ns": 0, "calls": 0, "host_ns": 0, "name": "nothing"}])
        made.append(dataclasses.replace(own, tables={**own.tables, analysis: table}))
    return [side("base", made[0]), side("other", made[1])]


@pytest.mark.parametrize(("analysis", "base", "other", "said"), CASES.values(), ids=CASES)
def test_what_only_one_run_does(analysis, base, other, said):
    line = compare(runs(analysis, base, other)).different.replace("\u202f", " ")
    listed = line.removeprefix("Different: ").split(". ", maxsplit=1)[0]
    assert listed == (said or "nothing that the runs tell")


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


def test_ranks_that_share_the_work_otherwise():
    base, other = (plain(800, 100, 100) for _ in range(2))
    made = compare([side("base", flops(base, (75, 25))), side("other", flops(other, (50, 50)))])
    assert "ranks' shares of the model FLOPs 75 %, 25 % | 50 %, 50 %" in made.different


def waiting(own, wait_ns, host_ns):
    """The capture, its idle time the host's, with these exposed waits."""
    idle = frame([{"step": None, "idle_ns": host_ns, "host_ns": host_ns}]).assign(
        sync_ns=0, data_ns=0, launch_ns=0, unknown_ns=0, between_kernels_ns=0
    )
    waits = frame([{"step": None, "exposed_transfer_ns": 0, "exposed_wait_ns": wait_ns, "exposed_unmatched_ns": 0}])
    breakdown = own.tables["breakdown"].assign(exposed_comm_ns=list(wait_ns), idle_ns=list(host_ns))
    return dataclasses.replace(own, tables={**own.tables, "idle": idle, "exposed_comm": waits, "breakdown": breakdown})


def test_a_difference_is_explained_by_the_rank_that_is_waited_for():
    base = waiting(plain(100, 10, 900), (1600, 0), (200, 1800))
    other = waiting(plain(100, 10, 100), (0, 0), (200, 200))
    said = " ".join(sentences.verdict_sentences(compare([side("base", base), side("other", other)]))).replace(
        "\u202f", " "
    )
    assert (
        "Most of the difference is idle (host), −800 ns a step on rank 1, for which others wait (900 ns → 100 ns)."
        in said
    )


def test_times_of_two_profilers_are_not_said_to_be_longer():
    made = []
    for name in ("kineto", "nsys"):
        own = plain(100, 10, 100 if name == "nsys" else 900)
        made.append(side(name, dataclasses.replace(
            own, tables={**own.tables, "ranks": own.tables["ranks"].assign(format=name)})))  # fmt: skip
    said = " ".join(sentences.verdict_sentences(compare(made))).replace("\u202f", " ")
    assert "nsys takes 210 ns a step under Nsight Systems, kineto 1.01 µs a step under PyTorch's profiler" in said
    assert "shorter" not in said
    assert "Compute, whose kernels a profiler hardly changes: 100 ns → 100 ns a step (0 %)." in said
