"""The grid's strategies: six ranks on three hosts each, with the faults that a strategy can have."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.simulator import workloads as usual
from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import COMM_STREAM, Job, Program, adjacent, strided
from tests.simulator.workloads import job_of, microbatch, one_forward_one_backward, optimizer

RANKS = 6

HOSTS = ("b00", "b00", "b01", "b01", "b02", "b02")

_STEP = "ProfilerStep#"


@dataclass(frozen=True)
class Strategy:
    """How a job is parallel.

    Attributes:
        name: of the strategy.
        make: the job of so many steps with faults.
        groups: sets of ranks that communicate by themselves before all others wait; none where there is one group.
        slow: the collective of these groups that `link` slows.
        times: by how much longer its faults are than a data parallel job's.
        has_steady_cost: of something that all ranks pay in every step and that may be said first: an optimizer on the
            CPU.
    """

    name: str
    make: Callable[[int, Faults], Job]
    groups: tuple[tuple[int, ...], ...] = ()
    slow: str = ""
    times: int = 1
    has_steady_cost: bool = False

    @property
    def is_pipeline(self) -> bool:
        """Its ranks exchange messages."""
        return self.groups == _STAGES


def made(strategy: Strategy, steps: int, faults: Faults, *, has_steps: bool = True) -> Job:
    """The job on three hosts; without the ranges of steps where the profiler knows none."""
    job = replace(strategy.make(steps, faults), hosts=HOSTS)
    return job if has_steps else replace(job, programs=tuple(map(_without_steps, job.programs)))


def _without_steps(program: Program) -> Program:
    kept = [each for each in program.instructions if not each.name.startswith(_STEP)]
    return Program(program.rank, kept, program.launched)


def slowed(job: Job, description: str, collective: str, faults: Faults) -> Job:
    """The job with transfers of some groups' collective that are longer by `link`, shared out over a step's calls."""
    return replace(job, programs=tuple(_slow(program, description, collective, faults) for program in job.programs))


def _slow(program: Program, description: str, collective: str, faults: Faults) -> Program:
    steps, step = [], -1
    for each in program.instructions:
        if each.what == "begin" and each.name.startswith(_STEP):
            step = int(each.name.removeprefix(_STEP))
        is_slow = each.comm and (each.comm.group.description, each.comm.collective) == (description, collective)
        steps.append(step if is_slow else -1)
    longer_ns = {
        step: time_ns(faults, "link", program.rank, step) // steps.count(step) for step in {*steps} if step >= 0
    }
    made = [
        replace(each, ns=each.ns + longer_ns.get(at, 0)) for each, at in zip(program.instructions, steps, strict=True)
    ]
    return Program(program.rank, made, program.launched)


def replicated_pipeline(steps: int, faults: Faults, chunks: int, *, stages: int = 3, microbatches: int = 6) -> Job:
    """Two pipelines of 1F1B, interleaved with several chunks, whose stages reduce their gradients with each other."""
    lines = adjacent("pp", stages, 2)
    across = strided("dp", 2, stages)

    def step(program: Program, number: int) -> None:
        line, stage = divmod(program.rank, stages)
        load(program, faults, number)
        order = one_forward_one_backward(stage, stages, microbatches, chunks)
        for place, (is_forward, chunk) in enumerate(order):
            microbatch(program, lines[line], chunk * stages + stage, stages * chunks, 500_000 // chunks,
                       is_forward=is_forward)  # fmt: skip
            if place == 1:
                strike(program, faults, number)
        slow_ns = time_ns(faults, "link", program.rank, number)
        last = program.launched - (2 if stage else 1)  # the last backward, which all but the first stage's rank send on
        reduced = program.collective("all_reduce", across[stage], 8_000_000, 400_000 + slow_ns,
                                     stream=COMM_STREAM + 8, after=(last,))  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(2 * stages, steps, step, (*lines, *across), faults)


def _rows(size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(first, first + size)) for first in range(0, RANKS, size))


def _hsdp(steps: int, faults: Faults) -> Job:
    return slowed(usual.hsdp(2, 3, steps, faults, layers=3), "shard", "all_gather", faults)


def _tensor(steps: int, faults: Faults) -> Job:
    return slowed(usual.tp_dp(2, 3, steps, faults, layers=3), "tp", "all_reduce", faults)


def _experts(steps: int, faults: Faults) -> Job:
    return slowed(usual.ep_dp(2, 3, steps, faults, layers=2), "ep", "all_to_all", faults)


_STAGES = ((0, 3), (1, 4), (2, 5))

STRATEGIES: tuple[Strategy, ...] = (
    Strategy("ddp", lambda steps, faults: usual.ddp(RANKS, steps, faults, layers=6)),
    Strategy("hsdp", _hsdp, _rows(2), "all-gather"),
    Strategy("fsdp", lambda steps, faults: usual.fsdp(RANKS, steps, faults, layers=4)),
    Strategy("tp x dp", _tensor, _rows(2), "all-reduce"),
    Strategy("ep in dp", _experts, _rows(2), "all-to-all"),
    Strategy("1f1b", lambda steps, faults: replicated_pipeline(steps, faults, 1), _STAGES, "all-reduce", 3),
    Strategy("interleaved", lambda steps, faults: replicated_pipeline(steps, faults, 2), _STAGES, "all-reduce", 3),
    Strategy(
        "offload",
        lambda steps, faults: usual.offload(RANKS, steps, faults, layers=3, optimizer_ns=2_000_000),
        has_steady_cost=True,
    ),
)
