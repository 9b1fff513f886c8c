"""Steps that are not all alike: more micro-batches from step to step, evaluations of unlike lengths, secondary shards, weights' gradients aside."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.jobs.transformers import block
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import WIDE_BACK_SHAPES, after_of, noisy_job, optimizer


def ramping_up(ranks: int = 8, faults: Faults = (), *, micro: tuple[int, ...] = (1, 1, 2, 2, 3, 3), layers: int = 2,
               steps: int = 0, noise: Noise | None = None) -> Job:  # fmt: skip
    """Data parallel whose batch grows: more micro-batches a step, gradients in the last; `strike` in the first."""
    world = Group("0", tuple(range(ranks)), "ddp")
    counts = micro[:steps] if steps else micro

    def step(program: Program, number: int) -> None:
        made = -1
        for own in range(counts[number]):
            load(program, faults if not own else (), number)
            for layer in range(layers):
                block(program)
                if layer == 1 and not own:
                    strike(program, faults, number)
            for _ in range(layers):
                made = block(program, is_backward=True)
                if own == counts[number] - 1:
                    made = program.collective("all_reduce", world, 40_000_000, 350_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, len(counts), step, (world,), faults, noise)


def secondary_shards(nodes: int = 2, each: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 4,
                     noise: Noise | None = None) -> Job:  # fmt: skip
    """Parameters are gathered over all in forward and within nodes in backward, gradients scattered over all (hpZ).

    `within`: the gathers within a rank's node take longer; `all`: those over all do.
    """
    rows, world = adjacent("node", each, nodes), Group("0", tuple(range(nodes * each)), "zero")

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // each]
        within_ns = sum(time_ns(faults, "within", rank, number) for rank in row.ranks) // layers
        all_ns = sum(time_ns(faults, "all", rank, number) for rank in world.ranks) // layers
        load(program, faults, number)
        made = -1
        for layer in range(2 * layers):
            is_backward = layer >= layers
            group, ns = (row, 90_000 + within_ns) if is_backward else (world, 220_000 + all_ns)
            got = program.collective("all_gather", group, 20_000_000, ns, stream=COMM_STREAM + is_backward)
            made = block(program, (got,), is_backward=is_backward)
            if layer == 1:
                strike(program, faults, number)
            if is_backward:
                made = program.collective(
                    "reduce_scatter", world, 20_000_000, 240_000, stream=COMM_STREAM + 2, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(nodes * each, steps, step, (*rows, world), faults, noise)


def weights_aside(tensor: int = 2, data: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 4,
                  noise: Noise | None = None) -> Job:  # fmt: skip
    """Tensor in data parallelism: gradients of weights are computed on a stream of their own, beside the all-reduces of inputs'.

    `aside`: a rank's gradients of weights take longer; `foreach`: its host steps tensor by tensor before the optimizer's kernels.
    """
    rows, columns = adjacent("tp", tensor, data), strided("dp", data, tensor)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        aside_ns = time_ns(faults, "aside", program.rank, number) // layers
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(layers):
            made = block(program, needed)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            needed = (program.collective("all_reduce", row, 8_000_000, 110_000, after=(made,)),)
        reduced = -1
        for _ in range(layers):
            made = after_of(program, "MmBackward0", "dgrad_gemm", 420_000, needed, shapes=WIDE_BACK_SHAPES)
            needed = (program.collective("all_reduce", row, 8_000_000, 110_000, after=(made,)),)
            with program.range("MmBackward0", "operator", WIDE_BACK_SHAPES):
                program.host(12_000)
                weight = program.kernel("wgrad_gemm", 400_000 + aside_ns, stream=COMPUTE_STREAM + 2, after=(made,))
            reduced = program.collective(
                "all_reduce", column, 16_000_000, 180_000, stream=COMM_STREAM + 1, after=(weight,)
            )
        host_ns = time_ns(faults, "foreach", program.rank, number)
        if host_ns:
            with program.range("Optimizer.step#AdamW.step"):
                program.host(host_ns, "torch/optim/adamw.py(412): _single_tensor_adamw", "frame")
        optimizer(program, (reduced, *needed))

    return noisy_job(tensor * data, steps, step, (*rows, *columns), faults, noise)
