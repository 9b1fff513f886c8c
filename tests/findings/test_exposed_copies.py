"""Copies between CPU and GPU that nothing hides."""

import pytest

from tests.simulator import scoreboard
from tests.simulator.cases import EVERY_CASE

CASES = {case.name: case for case in EVERY_CASE}


def found(name, kind="exposed_copies"):
    """Findings of a kind about a simulated job."""
    every = scoreboard.report_of(CASES[name]).findings
    return [item for item in every if item.kind == kind and not item.is_nothing]


@pytest.mark.parametrize(
    ("name", "headline", "why", "fix", "steps"),
    [
        (
            "pictures from pageable memory",
            "Exposed host-to-device copies: 9.02 ms/step.",
            "Copies through pageable CPU memory (39.8 MB/step at 4.39 GB/s; the link carries 63) overlap no compute.",
            "DataLoader(pin_memory=True) and tensor.to(device, non_blocking=True).",
            None,
        ),
        (
            "all copy their states in a step",
            "Exposed device-to-host copies: 2.03 ms/step, in step 3.",
            "Copies through pinned CPU memory (89.5 MB/step at 43.7 GB/s; the link carries 63) overlap no compute.",
            "Copy on its own CUDA stream beside the next compute; checkpoints: torch.distributed.checkpoint.async_save.",
            (3,),
        ),
    ],
    ids=["pageable", "a checkpoint"],
)
def test_copies_beside_nothing(name, headline, why, fix, steps):
    (one,) = found(name)
    assert (one.headline, one.why, one.fix, one.steps) == (headline, why, fix, steps)


def test_copies_of_one_rank_alone_are_a_stragglers():
    assert not found("two GPUs behind one switch")
