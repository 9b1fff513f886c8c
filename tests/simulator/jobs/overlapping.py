"""Jobs that hide what they exchange, load and gather behind compute: as long as it is shorter than that."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer

_DECODE_STREAM = 9


def two_batches(
    ranks: int = 8,
    steps: int = 5,
    faults: Faults = (),
    *,
    layers: int = 6,
    wire_ns: int = 150_000,
    noise: Noise | None = None,
) -> Job:
    """Decoding with experts on all ranks, two halves of a batch: one half's tokens travel while the other half computes.

    `hot`: a rank's experts get more tokens; `wire`: tokens travel longer, a step; `plan`: a rank's scheduler takes longer.
    """
    world = Group("0", tuple(range(ranks)), "ep")

    def step(program: Program, number: int) -> None:
        hot_ns = time_ns(faults, "hot", program.rank, number) // layers // 2
        travel_ns = wire_ns + time_ns(faults, "wire", program.rank, number) // layers // 4
        program.host(150_000 + time_ns(faults, "plan", program.rank, number), "scheduler.py(301): schedule", "frame")
        strike(program, faults, number)
        back = [program.copy("HtoD", 4096, 3_000)] * 2
        for _ in range(layers):
            sent = []
            for half in range(2):
                made = after_of(program, "aten::mm", "mla_decode_kernel", 200_000, (back[half],), 5_000)
                sent.append(program.collective("all_to_all", world, 1_000_000, travel_ns, after=(made,)))
            for half in range(2):
                shapes = f"[[{(180_000 + hot_ns) // 100}, 2048], [32, 2048, 2048]]"
                made = after_of(
                    program, "aten::_grouped_mm", "grouped_gemm", 180_000 + hot_ns, (sent[half],), 5_000, shapes
                )
                back[half] = program.collective("all_to_all", world, 1_000_000, travel_ns, after=(made,))
        made = after_of(program, "aten::argmax", "sample_kernel", 20_000, tuple(back), 8_000, "[[64, 128000]]")
        program.copy("DtoH", 512, 3_000, after=(made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def tables_ahead(ranks: int = 8, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """The next batch's ids are exchanged and looked up on a stream of its own while the dense part trains on this one.

    `rows`: looking up takes a rank longer; `bags`: the exchange of rows takes all ranks longer.
    """
    world, sparse = Group("0", tuple(range(ranks)), "dp"), Group("1", tuple(range(ranks)), "sparse")

    def ahead(program: Program, number: int) -> int:
        load(program, faults, number)
        with program.range("## start_sparse_data_dist ##"):
            ids = program.collective("all_to_all", sparse, 300_000, 60_000, stream=COMM_STREAM + 1,
                                     after=(program.launched - 1,))  # fmt: skip
        with (
            program.range("## embedding_lookup ##"),
            program.range("fbgemm::split_embedding_codegen_lookup", "operator"),
        ):
            program.host(20_000)
            looked = program.kernel("split_embedding_codegen_forward_kernel",
                                    700_000 + time_ns(faults, "rows", program.rank, number), stream=_DECODE_STREAM,
                                    after=(ids,))  # fmt: skip
        return program.collective("all_to_all", sparse, 8_000_000, 500_000 + time_ns(faults, "bags", program.rank, number),
                                  stream=COMM_STREAM + 1, after=(looked,))  # fmt: skip

    def step(program: Program, number: int) -> None:
        came = ready.get(program.rank, -1) if number else ahead(program, 0)
        ready[program.rank] = ahead(program, number + 1)
        for layer in range(6):
            after_of(program, "aten::addmm", "dense_gemm", 250_000, (came,) if not layer else ())
            if layer == 1:
                strike(program, faults, number)
        for _ in range(6):
            made = layer_of(program, "AddmmBackward0", "dense_gemm_backward", 450_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    ready: dict[int, int] = {}
    return noisy_job(ranks, steps, step, (world, sparse), faults, noise, ends_synced=False)


def in_shards_ahead(tensor: int = 2, data: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6,
                    noise: Noise | None = None) -> Job:  # fmt: skip
    """Tensor x data parallel, the optimizer in shards: parameters gathered behind forward, gradients scattered behind backward.

    Their norm is summed over all ranks and read. `dp`: a data group's scattering takes longer, `tp` a tensor group's sums.
    """
    rows, columns = adjacent("tp", tensor, data), strided("dp", data, tensor)
    world = Group("0", tuple(range(tensor * data)))

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        sums_ns = 35_000 + time_ns(faults, "tp", program.rank, number) // (2 * layers)
        pieces_ns = 200_000 + time_ns(faults, "dp", program.rank, number) // layers
        load(program, faults, number)
        gathered = [program.collective("all_gather", column, 12_000_000, 150_000) for _ in range(layers)]
        summed = gathered[0]
        for layer in range(layers):
            after_of(program, "aten::mm", "forward_gemm", 300_000, (gathered[layer], summed))
            if layer == 1:
                strike(program, faults, number)
            summed = program.collective("all_reduce", row, 2_000_000, sums_ns, stream=COMM_STREAM + 1,
                                        after=(program.launched - 1,))  # fmt: skip
        for _ in range(layers):
            made = after_of(
                program, "MmBackward0", "backward_gemm", 600_000, (program.launched - 1,), 14_000, WIDE_BACK_SHAPES
            )
            summed = program.collective("all_reduce", row, 2_000_000, sums_ns, stream=COMM_STREAM + 1, after=(made,))
            made = program.collective("reduce_scatter", column, 12_000_000, pieces_ns, after=(made,))
            program.kernel("add_bias", 4_000, after=(summed,))
        norm = after_of(program, "aten::linalg_vector_norm", "reduce_norm", 40_000, (made,), 9_000, "")
        norm = program.collective("all_reduce", world, 1, 18_000, stream=COMM_STREAM + 2, after=(norm,))
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4, 2_000, after=(norm,))
            program.sync("cudaStreamSynchronize")
        optimizer(program, ())

    return noisy_job(tensor * data, steps, step, (*rows, *columns, world), faults, noise)


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
