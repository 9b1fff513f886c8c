"""What is said first of jobs whose fault is known: those that are right stay right."""

import pytest

from tests.simulator.cases import CASES
from tests.simulator.scoreboard import judged

WRONG: frozenset[str] = frozenset(
    {
        "ddp, one rank, compute",
        "ddp, one rank, host",
        "ddp, one rank, copy",
        "ddp, one rank, data",
        "ddp, one rank, gc",
        "ddp, one rank, free",
        "fsdp, one rank, compute",
        "fsdp, one rank, copy",
        "fsdp, one rank, data",
        "fsdp, one rank, gc",
        "fsdp, one rank, free",
        "hsdp, one rank, compute",
        "hsdp, one rank, host",
        "tp x dp, one rank, compute",
        "tp x dp, one rank, loader",
        "ep in dp, one rank, compute",
        "ep in dp, one rank, host",
        "1f1b, one stage's host",
        "interleaved, one rank's loader",
        "offload, one rank's host",
        "ddp, a node of 64",
        "hsdp, a node of 64",
        "ddp, half of the ranks",
        "ddp, once, evaluation",
        "ddp, once, gc",
        "fsdp, steps 2 to 3, loader",
        "ddp, first recorded step",
        "hsdp, two recorded steps",
        "ddp, last step",
        "ddp, clocks apart",
        "ddp, in turn",
        "ddp, mixed causes",
        "ddp, every host as slow",
        "ddp, the straggler's file is missing",
        "ddp, clock step",
        "1f1b, one heavy stage",
        "offload, even",
    }
)
"""Cases of which the first line is not right yet: they become right, or stay here."""


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in WRONG], ids=lambda case: case.name)
def test_the_first_line_is_true(case):
    result = judged(case)
    assert not result.wrong, result.line
