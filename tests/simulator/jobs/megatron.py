"""Megatron-LM's jobs: its process groups by name, its interleaved schedule with sends and receives in one call."""

from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, one_forward_one_backward

_SHAPES = "[[4096, 768], [768, 768]]"

_MESSAGES, _GRADIENTS, _TIED, _NORM = (COMM_STREAM + number for number in (5, 6, 7, 8))


def interleaved(stages: int = 3, data: int = 2, chunks: int = 2, microbatches: int = 6, steps: int = 3, *,
                forward_ns: int = 600_000) -> Job:  # fmt: skip
    """Pipelines side by side, of at least 3 ranks `data` apart, with several stages a rank.

    Between two passes, or pairs of a forward and a backward pass, one call sends what they made and receives what the
    next ones need: up to two messages each way. Then tied embeddings and gradients are reduced, and their norm.
    """
    lines = [
        Group(f"pp{d}", tuple(range(d, stages * data, data)), "PIPELINE_MODEL_PARALLEL_GROUP") for d in range(data)
    ]
    ends = [Group(f"emb{d}", (line.ranks[0], line.ranks[-1]), "EMBEDDING_GROUP") for d, line in enumerate(lines)]
    models = [Group(f"mp{d}", line.ranks, "MODEL_PARALLEL_GROUP") for d, line in enumerate(lines)]
    rows = [
        Group(f"dp{s}", tuple(range(s * data, (s + 1) * data)), "DATA_PARALLEL_GROUP_WITH_CP") for s in range(stages)
    ]

    def step(program: Program, _number: int) -> None:
        stage, line = program.rank // data, program.rank % data
        last = _passes(program, lines[line], stage, chunks, microbatches, forward_ns)
        if program.rank in ends[line].ranks:
            last = program.collective("all_reduce", ends[line], 4_000_000, 60_000, stream=_TIED, after=(last,))
        last = program.collective("reduce_scatter", rows[stage], 8_000_000, 200_000, stream=_GRADIENTS, after=(last,))
        last = program.collective("all_reduce", models[line], 1, 10_000, stream=_NORM, after=(last,))
        with program.range("Optimizer.step#DistributedOptimizer.step"):
            last = program.kernel("multi_tensor_apply_kernel", 100_000, after=(last,))
        program.collective("all_gather", rows[stage], 8_000_000, 150_000, stream=_GRADIENTS, after=(last,))

    return job_of(stages * data, steps, step, (*lines, *ends, *models, *rows))


def _passes(program: Program, line: Group, stage: int, chunks: int, microbatches: int, forward_ns: int) -> int:
    stages = len(line.ranks)

    def peer(is_forward: bool, chunk: int, ahead: int) -> tuple[int, ...]:
        """The rank of the model's stage next to the chunk's, if there is one: before it, or after it (`ahead` 1)."""
        number = chunk * stages + stage + (ahead if is_forward else -ahead)
        return (line.ranks[number % stages],) if 0 <= number < stages * chunks else ()

    units = _units(one_forward_one_backward(stage, stages, microbatches, chunks))
    last = -1
    for place, unit in enumerate([[], *units]):
        for is_forward, _ in unit:
            last = _pass(program, forward_ns // chunks, last, is_forward=is_forward)
        following = units[place] if place < len(units) else []
        sends = tuple(rank for each in unit for rank in peer(*each, 1))
        receives = tuple(rank for each in following for rank in peer(*each, -1))
        if sends or receives:
            last = program.exchange(line, 1_000_000, 20_000, sends=sends, receives=receives, stream=_MESSAGES,
                                    after=(last,) if unit else ())  # fmt: skip
    return last


def _units(passes: list[tuple[bool, int]]) -> list[list[tuple[bool, int]]]:
    """Passes one by one, but forward and the backward that follows it together."""
    units: list[list[tuple[bool, int]]] = []
    for each in passes:
        if units and not each[0] and len(units[-1]) == 1 and units[-1][0][0]:
            units[-1].append(each)
        else:
            units.append([each])
    return units


def _pass(program: Program, forward_ns: int, after: int, *, is_forward: bool) -> int:
    phase, ns = ("forward", forward_ns) if is_forward else ("backward", 2 * forward_ns)
    with program.range(phase), program.range("aten::linear", "operator", _SHAPES):
        program.host(5_000)
        return program.kernel(f"{phase}_gemm", ns, after=(after,) if after >= 0 else ())
