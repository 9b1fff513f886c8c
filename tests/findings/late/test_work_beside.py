"""Kernels of a rank's own, beside those that take it longer."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.findings.stragglers.stragglers import work_beside

MS = 1_000_000
ROW = {"ranks": "1", "numbers": "3,4", "cause": "compute", "same_work_ratio": 1.5, "is_in_turn": False, "name": None,
       "own_ns": 30 * MS, "peers_ns": 20 * MS, "excess_ns": 10 * MS, "is_in_every_step": True, "gain_ns": 9 * MS,
       "step_ns": 40 * MS, "together": None, "joint_gain_ns": None, "joint_unprofiled_gain_ns": None,
       "unprofiled_gain_ns": None, "gain_is_bound": False, "own_host_ns": None, "peers_host_ns": None,
       "apart_host_ns": None, "steps": 3, "episode": 0, "set": "rank", "place": None,
       "gain_is_of_capture": False}  # fmt: skip


def told(computes_ms, conv_ms, conv_ranks, **changed):
    """Ranks 0 to 2 run products of 20 ms, rank 1's take 30; some run convolutions, rank 1 in `computes_ms` altogether."""
    rows = [(rank, step, "kernel", "gemm", 30 if rank == 1 else 20) for rank in range(3) for step in (3, 4)]
    for what, name in (("kernel", "conv"), ("operator", "aten::conv2d of [8, 3]")):
        rows += [(rank, step, what, name, conv_ms) for rank in conv_ranks for step in (3, 4)]
    work = pd.DataFrame(rows, columns=["rank", "step", "what", "name", "total_ns"])
    work = work.assign(part="compute_ns", calls=1, total_ns=work["total_ns"] * MS)
    needs = pd.DataFrame({"rank": [1, 1], "step": [3, 4], "compute_ns": [computes_ms * MS] * 2})
    episodes = SimpleNamespace(worth_pct=1.0, rows=lambda: [ROW | changed])
    found = work_beside(episodes, SimpleNamespace(table=work), SimpleNamespace(table=needs))
    return [one.title.replace("\u202f", " ") for one in found]


@pytest.mark.parametrize(
    ("computes_ms", "conv_ms", "conv_ranks", "is_said"),
    [(30, 8, (1,), True), (38, 8, (1,), False), (30, 4, (1,), False), (30, 8, (0, 1), False)],
    ids=["beside", "one after the other", "too short", "on another rank too"],
)
def test_what_runs_beside_kernels_that_take_longer_is_told(computes_ms, conv_ms, conv_ranks, is_said):
    says = "Rank 1 runs aten::conv2d beside them, which no other rank runs: 8 ms a step."
    assert told(computes_ms, conv_ms, conv_ranks) == [says] * is_said


def test_nothing_is_told_of_a_rank_that_has_more_to_do():
    assert told(30, 8, (1,), same_work_ratio=None) == []
