"""Every strategy trains like `single` does: the same losses on the same seed and global batch."""

import pytest

from traceanalyzer.runners.strategies import STRATEGIES

BASE = "--device cpu --profiler none --warmup 0 --steps 4 --lr 0.1 --out unused --strategy"
# fp32 sums in another order; ten steps further on the differences would still be far below this.
TOLERANCE = 1e-5

SINGLE = [f"{BASE} single --batch 16", f"{BASE} single --batch 12 --model tiny-bert --seed 3"]
ON_TWO_RANKS = {
    **{
        name: f"{BASE} {name} --batch 4 --accumulate 2"
        for name in (
            "simple_ddp", "simple_ddp_hook", "simple_ddp_async", "bucket_ddp_async", "pytorch_ddp", "pytorch_ddp_bf16",
            "zero1", "zero2", "zero3", "pytorch_zero1", "pytorch_zero2", "pytorch_zero3", "fsdp_hybrid",
        )
    },
    "simple_ddp_ga": f"{BASE} simple_ddp_ga --batch 2",
    "pp_naive": f"{BASE} pp_naive --batch 16",
    "pp_gpipe": f"{BASE} pp_gpipe --batch 16 --microbatches 4 --split 3,1",
    "pp_1f1b": f"{BASE} pp_1f1b --batch 16 --microbatches 8 --split 1,3",
    "tp": f"{BASE} tp --batch 16",
    "zero3, recomputing": f"{BASE} zero3 --batch 8 --checkpoint-activations",
    "pytorch_zero3, recomputing": f"{BASE} pytorch_zero3 --batch 8 --checkpoint-activations",
    "pp_1f1b, one microbatch": f"{BASE} pp_1f1b --batch 16 --microbatches 1",
}  # fmt: skip
ON_FOUR_RANKS = {
    "fsdp_hybrid": f"{BASE} fsdp_hybrid --batch 2 --accumulate 2",
    "zero3": f"{BASE} zero3 --batch 4",
    "pp_gpipe": f"{BASE} pp_gpipe --batch 16 --microbatches 2",
    "pp_1f1b": f"{BASE} pp_1f1b --batch 16 --microbatches 16",
    "tp": f"{BASE} tp --batch 16",
}
IN_BF16 = {
    name: f"{BASE} {name} --dtype bf16 --batch {batch}"
    for name, batch in (
        ("pytorch_ddp", 8),
        ("pytorch_ddp_bf16", 8),
        ("zero3", 8),
        ("pytorch_zero3", 8),
        ("pp_1f1b", 16),
        ("tp", 16),
    )
}
BF16_TOLERANCE = 1e-3
COMPRESSED = {
    "pytorch_ddp_fp16": (f"{BASE} pytorch_ddp_fp16 --batch 4 --accumulate 2", 1e-3),
    "pytorch_ddp_powersgd": (f"{BASE} pytorch_ddp_powersgd --batch 4 --accumulate 2", 3e-2),
}
SIZED = f"{BASE} pytorch_ddp --accumulate 2 --global-batch 16"
EXAMPLE = f"{BASE} flat_ddp --batch 4 --accumulate 2"
ENCODER = f"{BASE} pytorch_ddp --batch 6 --model tiny-bert --seed 3"
OWN_TESTS = {"single", "zo_offload", "broadcast1", "broadcast2", "broadcast3"}
DEEPSPEED = [f"deepspeed_zero{stage}" for stage in (1, 2, 3)]


RUNS = {
    1: SINGLE,
    2: [*ON_TWO_RANKS.values(), ENCODER, EXAMPLE, SIZED, *IN_BF16.values(), *(line for line, _ in COMPRESSED.values())],
    4: [*ON_FOUR_RANKS.values()],
}


@pytest.fixture
def single(measured):
    return [measured(line, 1)["losses"] for line in SINGLE]


def test_every_strategy_is_verified():
    assert set(STRATEGIES) == OWN_TESTS | set(COMPRESSED) | set(DEEPSPEED) | {
        name for name in ON_TWO_RANKS if "," not in name
    }


def test_single_learns(single):
    decoder, _ = single
    assert len(decoder) == 4
    assert decoder[-1] < decoder[0] - 0.05


@pytest.mark.parametrize(
    "line",
    [*ON_TWO_RANKS.values(), EXAMPLE, SIZED],
    ids=[*ON_TWO_RANKS, "the example of extending", "by its global batch"],
)
def test_two_ranks_have_the_losses_of_one(single, measured, line):
    assert measured(line, 2)["losses"] == pytest.approx(single[0], abs=TOLERANCE)


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_gradients_stay_near_whole_ones(single, measured, name):
    line, tolerance = COMPRESSED[name]
    losses = measured(line, 2)["losses"]
    assert losses == pytest.approx(single[0], abs=tolerance)
    assert losses != pytest.approx(single[0], abs=1e-7)


@pytest.mark.parametrize("name", ON_FOUR_RANKS)
def test_four_ranks_have_the_losses_of_one(single, measured, name):
    assert measured(ON_FOUR_RANKS[name], 4)["losses"] == pytest.approx(single[0], abs=TOLERANCE)


@pytest.mark.parametrize("name", IN_BF16)
def test_bf16_stays_near_fp32(single, measured, name):
    assert measured(IN_BF16[name], 2)["losses"] == pytest.approx(single[0], abs=BF16_TOLERANCE)


def test_the_encoder_trains_alike(single, measured):
    assert measured(ENCODER, 2)["losses"] == pytest.approx(single[1], abs=TOLERANCE)


def test_run_json_names_the_pipeline_split(measured):
    parallel = measured(ON_TWO_RANKS["pp_gpipe"], 2)["parallel"]
    assert (parallel["pp"], parallel["microbatches"], parallel["split"]) == (2, 4, [3, 1])


@pytest.mark.parametrize("name", DEEPSPEED)
def test_deepspeed_has_the_losses_of_one(single, runs_of, name):
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    (run,) = runs_of([f"{BASE} {name} --batch 4 --accumulate 2"], ranks=2)
    assert run["losses"] == pytest.approx(single[0], abs=TOLERANCE)
