"""Jobs sharded on two levels: whole models over all, copies within a node, gradients moved in two hops."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import WIDE_BACK_SHAPES, after_of, noisy_job, optimizer


def quantised(nodes: int = 2, each: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 5,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """ZeRO++: gathered over all in forward, within the node in backward; gradients in eight bits, within nodes, then across.

    `quant`: a rank's kernels that turn gradients to eight bits take longer; `card`: what a place's hop across nodes takes more.
    """
    world = Group("world", tuple(range(nodes * each)), "zero")
    rows, columns = adjacent("node", each, nodes), strided("across", nodes, each)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // each], columns[program.rank % each]
        more_ns = time_ns(faults, "quant", program.rank, number) // layers
        card_ns = max(time_ns(faults, "card", rank, number) for rank in column.ranks) // layers
        load(program, faults, number)
        held = program.collective("all_gather", world, 8_000_000, 150_000)
        for layer in range(layers):
            ready = held
            if layer < layers - 1:
                held = program.collective("all_gather", world, 8_000_000, 150_000)
            after_of(program, "aten::linear", "forward_gemm", 350_000, (ready,))
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            ready = program.collective("all_gather", row, 8_000_000, 60_000)
            made = after_of(program, "AddmmBackward0", "backward_gemm", 700_000, (ready,), 14_000, WIDE_BACK_SHAPES)
            made = after_of(program, "quantise_8bit", "swizzled_quant_kernel", 40_000 + more_ns, (made,), 9_000, "")
            sent = program.collective("all_to_all", row, 4_000_000, 50_000, stream=COMM_STREAM + 1, after=(made,))
            sent = program.collective("all_to_all", column, 1_000_000, 60_000 + card_ns, stream=COMM_STREAM + 1,
                                      after=(sent,))  # fmt: skip
        optimizer(program, (sent,))

    return noisy_job(nodes * each, steps, step, (world, *rows, *columns), faults, noise)


def counted(ranks: int = 4, steps: int = 6, faults: Faults = (), *, micro: int = 3, layers: int = 4, spread: float = 0.0,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """The loss is a mean over all ranks' tokens: their number is gathered and read before micro-batches; gradients at last.

    Micro-batches differ by up to `spread`, another way on each rank.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        with program.range("get_batch_samples"):
            after_of(program, "aten::sum", "reduce_kernel", 6_000, (), 8_000, "")
            program.collective("all_gather", world, 1, 15_000, stream=COMPUTE_STREAM)
            with program.range("aten::item", "operator"):
                program.sync("cudaStreamSynchronize")
        for part in range(micro):
            times = 1 + spread * ((program.rank * 5 + number * 7 + part * 3) % 11 / 5 - 1)
            shapes = f"[[{round(4096 * times)}, 2048], [2048, 2048]]"
            for layer in range(2 * layers):
                is_forward = layer < layers
                made = after_of(program, "aten::linear" if is_forward else "AddmmBackward0",
                                "forward_gemm" if is_forward else "backward_gemm",
                                round((200_000 if is_forward else 400_000) * times), (), 14_000, shapes)  # fmt: skip
                if layer == 1 and part == 1:
                    strike(program, faults, number)
                if part == micro - 1 and not is_forward:
                    made = program.collective("all_reduce", world, 12_000_000, 250_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
