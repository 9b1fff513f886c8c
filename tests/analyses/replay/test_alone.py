"""What kernels take without communication beside them."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.replay.alone import Alone


def ops(*rows):
    """Operations from (start, length, kind, shapes), all of one kernel and grid."""
    starts, lengths, kinds, shapes = zip(*rows, strict=True)
    return pd.DataFrame(
        {"start_ns": starts, "duration_ns": lengths, "kind": pd.Categorical(kinds), "name": pd.Categorical(["gemm"] * len(rows)),
         "grid": pd.Categorical(["132x1x1"] * len(rows)), "shapes": pd.Categorical(shapes)}
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
    before = [(place * 1_000, length, "compute", None) for place, length in enumerate(lengths)]
    alone = Alone(ops(*before, (10_000, 1_000, "comm", None), (10_100, 500, "compute", None)))
    assert np.isnan(alone.medians[alone.code[0]]) != is_told
    assert (alone.lengths_ns()[5] == 415) == is_told
