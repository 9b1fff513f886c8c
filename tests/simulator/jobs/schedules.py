"""Pipeline schedules as tables: what each rank computes in which order, and whom it sends to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd

FORWARD, BACKWARD, WEIGHTS = "F", "B", "W"


@dataclass(frozen=True)
class Pass:
    """One pass of one microbatch through one stage."""

    what: str
    stage: int
    microbatch: int


Programs = Mapping[int, list[Pass]]
"""Passes of one step in order, by rank."""


def one_f_one_b(ranks: int, microbatches: int, chunks: int = 1) -> Programs:
    """Forward and backward in turns; with several chunks a rank in groups of `ranks` microbatches, as Megatron does."""
    total = microbatches * chunks
    programs = {}
    for rank in range(ranks):
        warm = min(ranks - rank - 1 if chunks == 1 else (ranks - rank - 1) * 2 + (chunks - 1) * ranks, total)
        forward = [Pass(FORWARD, chunk * ranks + rank, number) for chunk, number in _order(ranks, microbatches, chunks)]
        backward = [
            Pass(BACKWARD, (chunks - 1 - chunk) * ranks + rank, number)
            for chunk, number in _order(ranks, microbatches, chunks)
        ]
        steady = [each for pair in zip(forward[warm:], backward, strict=False) for each in pair]
        programs[rank] = [*forward[:warm], *steady, *backward[total - warm :]]
    return programs


def zero_bubble(ranks: int, microbatches: int) -> Programs:
    """1F1B whose gradients of weights are computed apart: each as soon as there is nothing to send."""
    programs = {}
    for rank, passes in one_f_one_b(ranks, microbatches).items():
        split: list[Pass] = []
        for each in passes:
            split.append(each)
            if each.what == BACKWARD and each.microbatch >= rank:
                split.append(Pass(WEIGHTS, rank, each.microbatch - rank))
        rest = [Pass(WEIGHTS, rank, number) for number in range(microbatches - rank, microbatches)]
        programs[rank] = [*split, *rest]
    return programs


def tables(programs: Programs, place: Callable[[int], int], last: int, *, steps: int = 2, has_ranges: bool = False,
           has_phases: bool = True) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    """Messages and stretches of compute of some steps; `place` is a stage's rank, `last` the last stage."""
    messages: list[dict[str, object]] = []
    is_split = any(each.what == WEIGHTS for passes in programs.values() for each in passes)
    lengths = {FORWARD: 100, BACKWARD: 100 if is_split else 200, WEIGHTS: 100}
    stretches: list[dict[str, object]] = []
    for step in range(steps):
        for rank, passes in programs.items():
            for each in passes:
                now_ns = 1000 * len(stretches)
                ahead = 1 if each.what == FORWARD else -1
                source, target = each.stage - ahead, each.stage + ahead
                phase = "forward" if each.what == FORWARD else "backward"
                told = {"direction": phase if has_phases else None, "rank": rank, "step": step}
                is_sent = each.what != WEIGHTS
                if is_sent and 0 <= source <= last and place(source) != rank:
                    messages.append(
                        told | {"start_ns": now_ns, "is_send": False, "peer": place(source), "direction": None}
                    )
                stretches.append({"rank": rank, "step": step, "phase": phase, "slot": len(stretches),
                                  "virtual_stage": each.stage if has_ranges else pd.NA})  # fmt: skip
                if each.what == WEIGHTS and has_ranges:
                    stretches[-1]["phase"] = "backward of weights"
                stretches[-1] |= {"microbatch": each.microbatch, "is_beside": False, "compute_ns": lengths[each.what]}
                if is_sent and 0 <= target <= last and place(target) != rank:
                    messages.append(told | {"start_ns": now_ns + 500, "is_send": True, "peer": place(target)})
    frame = pd.DataFrame(stretches).astype({"virtual_stage": "Int64"})
    return pd.DataFrame(messages), frame if has_phases else frame.iloc[:0]


def _order(ranks: int, microbatches: int, chunks: int) -> list[tuple[int, int]]:
    """(chunk, microbatch) of each forward pass."""
    return [
        (number % (ranks * chunks) // ranks, number // (ranks * chunks) * ranks + number % ranks)
        if chunks > 1 else (0, number)
        for number in range(microbatches * chunks)
    ]  # fmt: skip
