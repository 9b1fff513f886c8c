"""Jobs that hide what they exchange, load and gather behind compute: as long as it is shorter than that."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer

_DECODE_STREAM = 9


def in_three_moves(
    each: int = 4, nodes: int = 2, steps: int = 5, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None
) -> Job:
    """Gradients scattered within a node, reduced between nodes along rails, gathered within a node; behind backward.

    `rail`: a rail's reductions take longer, a step.
    """
    rows, columns = adjacent("node", each, nodes), strided("rail", nodes, each)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // each], columns[program.rank % each]
        rail_ns = 220_000 + time_ns(faults, "rail", program.rank, number) // layers
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 250_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 500_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("reduce_scatter", row, 16_000_000, 60_000, after=(made,))
            made = program.collective("all_reduce", column, 4_000_000, rail_ns, stream=COMM_STREAM + 1, after=(made,))
            made = program.collective("all_gather", row, 16_000_000, 60_000, stream=COMM_STREAM + 2, after=(made,))
        optimizer(program, (made,))

    return noisy_job(each * nodes, steps, step, (*rows, *columns), faults, noise)


def decoded_on_gpu(ranks: int = 4, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """The next batch's pictures are read on the CPU and decoded on the GPU, on a stream of its own, while this one trains.

    `pictures`: a rank's are larger, and decoding takes longer.
    """
    world = Group("0", tuple(range(ranks)))

    def decoded(program: Program, number: int) -> int:
        load(program, faults, number)
        ns = 3_000_000 + time_ns(faults, "pictures", program.rank, number)
        with program.range("dali.run"):
            program.host(60_000)
            for _ in range(4):
                made = program.kernel("nvjpeg_decode_kernel", ns // 4, stream=_DECODE_STREAM, after=(program.launched - 1,),
                                      blocks=6)  # fmt: skip
        return made

    def step(program: Program, number: int) -> None:
        came = ready.get(program.rank, -1) if number else decoded(program, 0)
        ready[program.rank] = decoded(program, number + 1)
        for layer in range(8):
            after_of(program, "aten::cudnn_convolution", "conv_forward", 300_000, (came,) if not layer else ())
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "ConvolutionBackward0", "conv_backward", 600_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (made,))

    ready: dict[int, int] = {}
    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)
