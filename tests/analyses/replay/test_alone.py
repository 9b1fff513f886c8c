"""What kernels take without communication beside them."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.replay.alone import Alone


def ops(*rows, names=None, phases=None):
    """Operations from (start, length, kind, shapes), all of one kernel, grid and phase, but for `names` and `phases`."""
    starts, lengths, kinds, shapes = zip(*rows, strict=True)
    many = len(rows)
    return pd.DataFrame(
        {"start_ns": starts, "duration_ns": lengths, "kind": pd.Categorical(kinds), "stream": [7] * many,
         "name": pd.Categorical(names or ["gemm"] * many), "grid": pd.Categorical(["132x1x1"] * many),
         "shapes": pd.Categorical(shapes), "phase": pd.Categorical(phases or ["forward"] * many)}
    )  # fmt: skip


BESIDE = [(10_000, 1_000, "comm", None), (10_100, 500, "compute", "long"), (20_000, 500, "compute", "long")]


def test_a_kernel_of_other_shapes_is_another_one():
    alone = Alone(ops(*((place * 1_000, 100, "compute", "short") for place in range(5)), *BESIDE))
    # It runs alone once only with these shapes: too few to tell. The short ones are no measure of it.
    assert np.isnan(alone.medians[alone.code[6]])
    assert alone.lengths_ns()[6] > 1_000_000
    assert alone.medians[alone.code[0]] == 100


@pytest.mark.parametrize(("lengths", "is_told"), [((400, 410, 420, 430), True), ((100, 100, 430, 430), False)])
def test_runs_that_differ_are_of_unlike_work(lengths, is_told):
    before = [(place * 1_000, length, "compute", "one") for place, length in enumerate(lengths)]
    alone = Alone(ops(*before, (10_000, 1_000, "comm", None), (10_100, 500, "compute", "one")))
    assert np.isnan(alone.medians[alone.code[0]]) != is_told
    assert (alone.lengths_ns()[5] == 415) == is_told


@pytest.mark.parametrize(
    ("names", "phases", "is_told"),
    [(["gemm"] * 7, ["forward"] * 7, True), (["gemm"] * 7, ["forward"] * 5 + ["backward"] * 2, False),
     ([*["gemm"] * 4, "gelu", "gemm", "gelu"], ["forward"] * 7, False)],
    ids=["the same", "in another phase", "beside other kernels"],
)  # fmt: skip
def test_without_shapes_the_place_in_the_program_tells_work_apart(names, phases, is_told):
    rows = [
        *((place * 1_000, 400, "compute", None) for place in range(5)),
        (10_100, 900, "compute", None),
        (30_000, 5, "compute", None),
    ]
    beside = (10_000, 1_200, "comm", None)
    both = pd.concat([ops(*rows, names=names, phases=phases), ops(beside).assign(stream=17)], ignore_index=True)
    alone = Alone(both.astype(dict.fromkeys(("kind", "name", "grid", "shapes", "phase"), "category")))
    assert (alone.lengths_ns()[5] == 400) == is_told
