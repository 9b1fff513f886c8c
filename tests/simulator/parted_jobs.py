"""Models in parts: gathered late, sequences in parts, pipelines with a vocabulary, tensor parallel stages."""

from collections.abc import Sequence

from tests.simulator.faults import Faults, load, strike
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, microbatch, one_forward_one_backward, optimizer

_SHAPES = "[[4096, 768], [768, 768]]"


def gathered_late(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 8) -> Job:
    """Fully sharded without prefetch: a layer's parameters are asked for when the layer before is done."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = -1
        for layer in range(2 * layers):
            gathered = program.collective("all_gather", world, 8_000_000, 200_000, after=(made,) if made >= 0 else ())
            with program.range("aten::linear", "operator", _SHAPES):
                program.host(10_000)
                made = program.kernel("gemm", 300_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if layer >= layers:
                program.collective("reduce_scatter", world, 8_000_000, 100_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (program.launched - 1,))

    return job_of(ranks, steps, step, (world,), faults)


def with_loss(stages: int = 4, microbatches: int = 8, steps: int = 4, faults: Faults = (), *, chunks: int = 1,
              loss_ns: int = 400_000) -> Job:  # fmt: skip
    """A pipeline whose last stage also multiplies by the vocabulary, in forward and backward of each microbatch."""
    world = Group("0", tuple(range(stages)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for place, (is_forward, chunk) in enumerate(
            one_forward_one_backward(program.rank, stages, microbatches, chunks)
        ):
            stage = chunk * stages + program.rank
            if stage == stages * chunks - 1 and not is_forward:
                layer_of(program, "aten::linear", "vocabulary_gemm", loss_ns, 10_000, "[[4096, 768], [768, 128000]]")
            microbatch(program, world, stage, stages * chunks, 500_000 // chunks, is_forward=is_forward)
            if place == 1:
                strike(program, faults, number)
        optimizer(program, ())

    return job_of(stages, steps, step, (world,), faults)


def sequence_parallel(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 6) -> Job:
    """Tensor parallel with sequences in parts: gathered before each layer, scattered after it."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(2 * layers):
            gathered = program.collective("all_gather", world, 4_000_000, 80_000, after=needed)
            with program.range("aten::mm", "operator", _SHAPES):
                program.host(12_000)
                made = program.kernel("gemm", 300_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            needed = (program.collective("reduce_scatter", world, 4_000_000, 80_000, after=(made,)),)
        optimizer(program, needed)

    return job_of(ranks, steps, step, (world,), faults)


def tensor_in_pipeline(tensor: int = 2, stages: int = 3, steps: int = 4, faults: Faults = (), *, microbatches: int = 6,
                       stage_ns: Sequence[int] = (300_000, 300_000, 300_000)) -> Job:  # fmt: skip
    """1F1B of tensor parallel stages, of which one may be heavier; rank t + tensor · stage."""
    rows = [Group(f"tp{s}", tuple(range(s * tensor, (s + 1) * tensor)), "tp") for s in range(stages)]
    lines = [Group(f"pp{t}", tuple(range(t, tensor * stages, tensor)), "pp") for t in range(tensor)]

    def step(program: Program, number: int) -> None:
        s, t = divmod(program.rank, tensor)
        load(program, faults, number)
        for place, (is_forward, _) in enumerate(one_forward_one_backward(s, stages, microbatches, 1)):
            source, target = (s - 1, s + 1) if is_forward else (s + 1, s - 1)
            stream, line = COMM_STREAM + (0 if is_forward else 2), lines[t].ranks
            needed: tuple[int, ...] = ()
            if 0 <= source < stages:
                needed = (program.exchange(lines[t], 1_000_000, 30_000, receives=(line[source],), stream=stream),)
            with program.range("aten::linear", "operator", _SHAPES):
                program.host(12_000)
                ns = stage_ns[s] * (1 if is_forward else 2)
                made = program.kernel("forward_gemm" if is_forward else "backward_gemm", ns, after=needed)
            if place == 1:
                strike(program, faults, number)
                made = max(made, program.launched - 1)
            made = program.collective("all_reduce", rows[s], 1_000_000, 30_000, stream=COMM_STREAM + 5, after=(made,))
            if 0 <= target < stages:
                program.exchange(lines[t], 1_000_000, 30_000, sends=(line[target],), stream=stream + 1, after=(made,))
        optimizer(program, (made,))

    return job_of(tensor * stages, steps, step, (*rows, *lines), faults)
