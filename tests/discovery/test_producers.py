"""Names of folders and files as each producer writes them, read without a flag: how many runs, and which ranks.

Sources, as of 2026: torchtitan/tools/profiler.py, accelerate's ProfileKwargs, Lightning's PyTorchProfiler,
vllm/v1/worker/gpu_worker.py, sglang/srt/utils/profile_utils.py, slime/utils/profile_utils.py, verl/utils/profiler,
dynolog's gputrace. DeepSpeed and Hugging Face's Trainer leave the name to PyTorch's handler.
"""

import pytest

from tests.builders import document, kernel, write
from traceanalyzer.discovery import discover
from traceanalyzer.snapshots.reading import rank_of

CASES = {
    "torchtitan": (
        [f"profiling/traces/iteration_{step}/rank{rank}_trace.json.gz" for step in (10, 20) for rank in (0, 1)],
        [[0, 1], [0, 1]],
    ),
    "torchtitan, replicas": (
        ["iteration_10/replica_0/rank0_trace.json", "iteration_10/replica_0/rank1_trace.json",
         "iteration_10/replica_1/rank0_trace.json", "iteration_10/replica_1/rank1_trace.json"],
        [[0, 1], [0, 1]],
    ),
    "Lightning": (
        [f"fit-perf-{rank}-[Strategy]DDPStrategy.training_step.17848432412345678{rank}.pt.trace.json" for rank in (0, 1)],
        [[0, 1]],
    ),
    "accelerate": (["profile_0.json", "profile_1.json"], [[0, 1]]),
    "PyTorch's handler (DeepSpeed, Trainer)": (
        ["n1_100.1784843241234567890.pt.trace.json", "n1_101.1784843241234567891.pt.trace.json"], [[0, 1]],
    ),
    "Megatron": (["exp[a]-rank[3].1700000000000.pt.trace.json", "exp[a]-rank[5].1700000000001.pt.trace.json"], [[3, 5]]),
    "vLLM 0.9": (
        [f"n1_100-rank-{rank}.178484324123456789{rank}.pt.trace.json.gz" for rank in (0, 1)], [[0, 1]],
    ),
    "vLLM": (
        [f"dp{dp}_pp0_tp{tp}_dcp0_ep{2 * dp + tp}_rank{tp}.178484324123456789{2 * dp + tp}.pt.trace.json.gz"
         for dp in (0, 1) for tp in (0, 1)],
        [[0, 1, 2, 3]],
    ),
    "SGLang": ([f"1784843241.25-TP-{tp}.trace.json.gz" for tp in (2, 3)], [[2, 3]]),
    "SGLang, attention in parallel": (
        [f"1784843241.25-TP-{tp}-DP-{tp // 2}-EP-{tp}.trace.json.gz" for tp in range(4)], [[0, 1, 2, 3]],
    ),
    "SGLang, replicas": ([f"p-1784843241.25-TP-0-DP-{dp}.trace.json.gz" for dp in (0, 1)], [[0, 1]]),
    "SGLang, stages": (
        [f"1784843241.25-TP-{tp}-PP-{pp}-DECODE.trace.json.gz" for pp in (0, 1) for tp in (0, 1)], [[0, 1, 2, 3]],
    ),
    "verl": ([f"prof_start_1_end_2_rank_{rank}.json" for rank in (0, 1)], [[0, 1]]),
    "slime": ([f"train_overall_rank_{rank}.178484324123456789{rank}.pt.trace.json.gz" for rank in (0, 1)], [[0, 1]]),
    "dynolog": (["libkineto_activities_3100.json", "libkineto_activities_3101.json"], [[0, 1]]),
}  # fmt: skip


@pytest.mark.parametrize("producer", CASES)
@pytest.mark.parametrize("has_head", [False, True])
def test_files_as_their_producers_name_them(tmp_path, producer, has_head):
    """Whether or not the trace itself names its rank, which it does where `torch.distributed` is initialised."""
    names, ranks = CASES[producer]
    told = [rank for run in ranks for rank in run]
    for name, rank in zip(names, told, strict=True):
        later = 100 if "iteration_20" in name else 1 if "replica_1" in name else 0
        content = document([kernel(1e6 * later + rank, 5)], rank=rank if has_head else None, base_ns=10**18,
                           world_size=max(told) + 1)  # fmt: skip
        write(tmp_path / name, content)
    found = [sorted(rank for one in run.captures for rank in one.ranks) for run in discover(tmp_path).runs]
    assert found == ranks
    if not has_head:
        by_name = {one.path.name: one.ranks for run in discover(tmp_path).runs for one in run.captures}
        assert [by_name[name.rpartition("/")[2]] for name in names] == [(rank,) for rank in told]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("memory_snapshot/iteration_10/rank3_memory_snapshot.pickle", 3),
        ("profiling/memory_snapshot/step_000000000010/000003_step_10.pickle", 3),
        ("1784843241.25-TP-3-memory-DECODE.pickle", 3),
        ("memory_snapshot_time1784843241.25_rank3_snapshot.pickle", 3),
        ("snapshot_10.pickle", None),
    ],
)
def test_snapshots_as_torchtitan_sglang_and_slime_name_them(tmp_path, name, rank):
    assert rank_of(tmp_path / name) == rank
