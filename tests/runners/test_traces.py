"""What a run leaves behind: a trace a rank with known ranges and collectives, and run.json."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

STEPS = 2
BLOCKS = 4  # of the preset `tiny`
BASE = f"--device cpu --warmup 0 --steps 2 --profile-wait 0 --profile-warmup 1 --profile-active {STEPS} --batch 4"
# Collectives that one step issues. All-reduces of DDP are counted per bucket: tiny fits into one.
COLLECTIVES = {
    "simple_ddp": {"allreduce": 8 * BLOCKS + 5},
    "bucket_ddp_async": {"allreduce": 1},
    "pytorch_ddp --accumulate 3": {"allreduce": 1},
    "zero2": {"all_gather": BLOCKS + 1, "reduce_scatter": BLOCKS + 1},
    "zero3": {"all_gather": 2 * BLOCKS + 1, "reduce_scatter": BLOCKS + 1},
    "zero3 --accumulate 2": {"all_gather": 2 * (2 * BLOCKS + 1), "reduce_scatter": BLOCKS + 1},
    "pytorch_zero2": {"all_gather": BLOCKS + 1, "reduce_scatter": BLOCKS + 1},
    "pytorch_zero3": {"all_gather": 2 * BLOCKS + 1, "reduce_scatter": BLOCKS + 1},
    "tp": {"allreduce": 4 * BLOCKS},
}
OPERATIONS = {
    "c10d::allreduce_": "allreduce",
    "c10d::_allgather_base_": "all_gather",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
}


LINES = {
    name: f"--strategy {name} {BASE} --out {name.replace(' ', '_')}"
    for name in [*COLLECTIVES, "pp_1f1b --microbatches 2"]
}
RUNS = {2: [*LINES.values()]}


@pytest.fixture
def traces(measured):
    """Folder of each run's traces."""
    return {name: Path(measured(line, 2)["out"]) for name, line in LINES.items()}


def events(folder, rank):
    (path,) = (folder / f"rank_{rank}").glob("*.pt.trace.json.gz")
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def names(folder, rank, category):
    return Counter(event["name"] for event in events(folder, rank) if event.get("cat") == category)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_a_step(traces, name):
    for rank in range(2):
        counts = names(traces[name], rank, "cpu_op")
        issued = {kind: counts[operation] for operation, kind in OPERATIONS.items() if counts[operation]}
        assert issued == {kind: STEPS * count for kind, count in COLLECTIVES[name].items()}


@pytest.mark.parametrize("name", ["simple_ddp", "zero3"])
def test_ranges_a_step(traces, name):
    ranges = names(traces[name], 0, "user_annotation")
    blocks = [f"{phase}block_{index}" for phase in ("", "backward ") for index in range(BLOCKS)]
    for wanted in ["data", "forward", "backward", "grad_sync", "optimizer", *blocks]:
        assert ranges[wanted] == STEPS, wanted


def test_both_ranks_name_a_capture_alike(traces):
    (first,), (second,) = ((traces["zero2"] / f"rank_{rank}").iterdir() for rank in range(2))
    assert first.name == second.name


def test_pipeline_ranges_name_the_microbatch(traces):
    ranges = names(traces["pp_1f1b --microbatches 2"], 1, "user_annotation")
    assert {ranges[f"{phase} mb{index}"] for phase in ("forward", "backward") for index in range(2)} == {STEPS}
