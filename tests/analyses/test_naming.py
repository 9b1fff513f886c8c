"""Whether the same work takes longer (the GPU is slower), or one kernel has more to do."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.blame.naming import named

MM = "aten::mm of [8, 8] × [8, 8]"


def told(times_of_rank_1, operators=None):
    """What is said of rank 1 beside rank 0, whose kernels take 1 ms each: name, and times of the same kernels."""
    work = pd.DataFrame(
        [
            (rank, 0, "compute_ns", what, name, round(1e6 * (times if rank else 1.0)), 10, 132)
            for what, of_kind in (("kernel", times_of_rank_1), ("operator", operators or {}))
            for name, times in of_kind.items()
            for rank in (0, 1)
        ],
        columns=["rank", "step", "part", "what", "name", "total_ns", "calls", "blocks"],
    )
    late = pd.DataFrame({"rank": [0, 1], "step": [0, 0], "peers": [0, 0]})
    excess_ns = round(1e6 * sum(times - 1 for times in times_of_rank_1.values()))
    cells = pd.DataFrame({"rank": [1], "step": [0], "part": ["compute_ns"], "excess_ns": [excess_ns]})
    row = named(cells, late, work).iloc[0]
    return row["name"], row["same_ns"] / row["peers_same_ns"]


@pytest.mark.parametrize(
    ("kernels", "operators", "name", "ratio"),
    [
        ({"gemm": 1.3, "attention": 1.3, "norm": 1.3}, {}, None, 1.3),  # a slower clock
        ({"gemm": 3.0, "attention": 1.4, "norm": 1.6}, {}, None, 2.0),  # shared with another process: unevenly
        ({"gemm": 1.0, "persistent": 3.0, "norm": 1.0}, {}, "persistent", np.nan),  # no grid tells its work
        (
            {"gemm": 1.0, "persistent": 3.0},
            {MM: 3.0},
            "aten::mm",
            3.0,
        ),  # but its operator's shapes do, and the rest is as fast
        (
            {"gemm": 1.0, "gelu": 1.8, "norm": 1.8},
            {MM: 1.0, "aten::gelu of [8, 8]": 1.8, "aten::norm of [8, 8]": 1.8},
            "aten::gelu and aten::norm",
            1.8,
        ),
        ({"gemm": 1.0, "persistent": 3.0}, {"lib::run of [8, 8]": 3.0}, "lib::run of [8, 8]", np.nan),
        ({"gemm": 1.0, "m_grouped_gemm_masked": 3.0}, {}, "m_grouped_gemm_masked", np.nan),
        ({"gemm": 1.2, "m_grouped_gemm_masked": 1.2, "attention": 1.2}, {}, None, 1.2),  # the others tell of the GPU
    ],
)
def test_a_gpu_is_slower_only_where_the_same_work_is(kernels, operators, name, ratio):
    assert told(kernels, operators) == (name, pytest.approx(ratio, nan_ok=True))


@pytest.mark.parametrize("what", ["doing", "range"])
@pytest.mark.parametrize(
    ("name", "is_named"), [("## Call CompiledFxGraph fcdwcoymvvni ##", False), ("checkpoint", True), ("forward", False)]
)
def test_what_a_host_does_all_the_time_is_no_name_for_its_lateness(what, name, is_named):
    """Rank 0's GPU waits inside a collective meanwhile, and idles for nothing that its host does."""
    work = pd.DataFrame([(1, 0, "host_ns", what, name, 8_000_000, 0, 0)],
                        columns=["rank", "step", "part", "what", "name", "total_ns", "calls", "blocks"])  # fmt: skip
    late = pd.DataFrame({"rank": [0, 1], "step": [0, 0], "peers": [0, 0]})
    cells = pd.DataFrame({"rank": [1], "step": [0], "part": ["host_ns"], "excess_ns": [10_000_000]})
    assert named(cells, late, work)["name"].tolist() == [name if is_named else None]
