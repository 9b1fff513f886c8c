"""Pipelines whose stages do something in some of a step's passes alone, or in some steps: pauses, longer texts, evaluation."""

from collections.abc import Sequence

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import noisy_job, one_forward_one_backward, optimizer

_FORWARD_NS = 450_000


def in_passes(stages: int = 4, data: int = 2, steps: int = 4, faults: Faults = (), *, microbatches: int = 8,
              at: Sequence[int] = (4,), evaluates: Sequence[int] = (), noise: Noise | None = None) -> Job:  # fmt: skip
    """1F1B in replicas. In passes `at` (places of a stage's order): `hot`: the same kernels take more; `host`, `gc` as usual.

    `text`: a replica's microbatch at those places is longer, on all its stages. In steps `evaluates` forward alone follows.
    """
    lines, columns = adjacent("pp", stages, data), strided("dp", data, stages)

    def step(program: Program, number: int) -> None:
        line, stage = lines[program.rank // stages], program.rank % stages
        load(program, faults, number)
        counts = {True: 0, False: 0}
        for place, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, microbatches, 1)):
            is_one, is_text = place in at, counts[is_forward] in at
            counts[is_forward] += 1
            hot_ns = time_ns(faults, "hot", program.rank, number) // len(at) if is_one else 0
            text_ns = time_ns(faults, "text", program.rank, number) // len(at) if is_text else 0
            if is_one:
                strike(program, faults, number)
            _passed(program, line, stage, is_forward=is_forward, hot_ns=hot_ns, text_ns=text_ns)
        made = program.collective("all_reduce", columns[stage], 20_000_000, 400_000, stream=COMM_STREAM + 8,
                                  after=(_computed(program),))  # fmt: skip
        optimizer(program, (made,))
        if number in evaluates:
            with program.range("evaluate"):
                for _ in range(microbatches):
                    _passed(program, line, stage, is_forward=True)

    return noisy_job(stages * data, steps, step, (*lines, *columns), faults, noise)


def _computed(program: Program) -> int:
    launches = [each for each in program.instructions if each.what == "launch"]
    return next(place for place in range(len(launches) - 1, -1, -1) if launches[place].stream == COMPUTE_STREAM)


def _passed(program: Program, line: Group, stage: int, *, is_forward: bool, hot_ns: int = 0, text_ns: int = 0) -> None:
    source, target = (stage - 1, stage + 1) if is_forward else (stage + 1, stage - 1)
    stream = COMM_STREAM + (0 if is_forward else 2)
    needed: tuple[int, ...] = ()
    if 0 <= source < len(line.ranks):
        needed = (program.exchange(line, 1_000_000, 30_000, receives=(line.ranks[source],), stream=stream),)
    own_ns = (1 if is_forward else 2) * _FORWARD_NS
    tokens = 4096 + text_ns * 4096 // own_ns
    for half in range(2):
        with program.range("aten::linear" if is_forward else "AddmmBackward0", "operator",
                           f"[[{tokens}, 2048], [2048, 2048]]"):  # fmt: skip
            program.host(12_000)
            done = program.kernel("forward_gemm" if is_forward else "backward_gemm", (own_ns + hot_ns + text_ns) // 2,
                                  after=needed if not half else ())  # fmt: skip
    if 0 <= target < len(line.ranks):
        program.exchange(line, 1_000_000, 30_000, sends=(line.ranks[target],), stream=stream + 1, after=(done,))
