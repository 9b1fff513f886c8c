"""PyTorch's own pipeline schedules: the orders of their actions, as its ranges write them, and jobs that carry them out."""

import re
from types import SimpleNamespace
from typing import Any

import pandas as pd

from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, optimizer

PHASES = {"F": "forward", "B": "backward", "I": "backward of inputs", "W": "backward of weights"}
_PASS = re.compile(r"(\d+)([FBIW])(\d+)")
_MESSAGE = re.compile(r"(\d+)(SEND|RECV)_([FB])(\d+)")
_SHAPES = "[[1024, 768], [768, 768]]"


def actions(
    name: str, ranks: int, chunks: int, microbatches: int, *, has_messages: bool = False
) -> dict[int, list[str]]:
    """Of each rank the actions of one step: `2F0`, `(3F1;4B0)OVERLAP_F_B`. `name` is a class of PyTorch's schedules."""
    from torch.distributed.pipelining import schedules

    made: Any = getattr(schedules, name)
    total = ranks * chunks
    stages = [SimpleNamespace(stage_index=number, num_stages=total, group_size=ranks, group_rank=0, group=None,
                              is_first=not number, is_last=False, submod=None, has_backward=True,
                              stage_index_to_group_rank={})
              for number in range(0, total, ranks)]  # fmt: skip
    if is_folded(name):
        stages[1].stage_index = total - 1
    found = made(stages, microbatches, loss_fn=lambda _output, _target: None)
    order = found.pipeline_order_with_comms if has_messages else found.pipeline_order
    return {rank: [str(each) for each in own if each is not None] for rank, own in order.items()}


def is_folded(name: str) -> bool:
    """Whether the stages run back along the ranks."""
    return name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")


def stretches(actions_of: dict[int, list[str]], lengths: dict[str, int], steps: int = 2) -> pd.DataFrame:
    """The rows of `pipeline_schedule` that a trace of it would give."""
    rows = [
        {"rank": rank, "step": step, "phase": PHASES[what], "virtual_stage": int(stage), "microbatch": int(number),
         "compute_ns": lengths[what], "is_beside": "OVERLAP" in action}
        for rank, own in actions_of.items()
        for step in range(steps)
        for action in own
        for stage, what, number in _PASS.findall(action.split(")")[0])
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(slot=range(len(rows))).astype({"virtual_stage": "Int64"})


def job(name: str, ranks: int, microbatches: int, lengths: dict[str, int], steps: int = 3) -> Job:
    """A pipeline with two stages a rank that carries out the schedule, each action in its range."""
    order = actions(name, ranks, 2, microbatches, has_messages=True)
    world = Group("0", tuple(range(ranks)))
    last = 2 * ranks - 1

    def rank_of(stage: int) -> int:
        return min(stage, last - stage) if is_folded(name) else stage % ranks

    def step(program: Program, _number: int) -> None:
        received: dict[tuple[str, int, int], int] = {}
        done = -1
        for action in order[program.rank]:
            message = _MESSAGE.fullmatch(action)
            with program.range(f"PP:{action}"):
                if message:
                    stage, way, number = int(message[1]), message[3], int(message[4])
                    is_send = message[2] == "SEND"
                    peer = rank_of(stage + (1 if (way == "F") == is_send else -1))
                    stream = COMM_STREAM + peer  # a pair's messages follow each other
                    # A send waits for all that was launched before it.
                    told: Any = {"sends": (peer,), "after": (done,)} if is_send else {
                        "receives": (peer,)}  # fmt: skip
                    call = program.exchange(world, 100_000, 5_000, stream=stream, **told)
                    received[way, stage, number] = call
                for stage, what, number in _PASS.findall(action.split(")")[0]) if not message else ():
                    way = "F" if what == "F" else "B"
                    needed = received.get((way, int(stage), int(number)))
                    operator = "aten::linear" if what == "F" else "autograd::engine::evaluate_function: AddmmBackward0"
                    with program.range(operator, "operator", _SHAPES):
                        program.host(5_000)
                        done = program.kernel("gemm", lengths[what], after=() if needed is None else (needed,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,))
