"""Recommender models: ids and pooled rows of embeddings go round all ranks unevenly, the dense part is data parallel."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, layer_of, noisy_job, optimizer

TABLES = (4, 3, 3, 2, 4, 3, 2, 3)
"""Tables on each rank: sharded by table, so that loads are never quite even."""


def sharded_tables(
    ranks: int = 8, steps: int = 5, faults: Faults = (), *, batch: int = 4096, noise: Noise | None = None
) -> Job:
    """Ids are exchanged, rows pooled and exchanged, towers run, gradients go back. `hot`: ids of a rank's tables are longer bags."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        more = [time_ns(faults, "hot", rank, number) // 3 // 25 for rank in range(ranks)]
        ids = [batch * TABLES[rank % 8] + more[rank] for rank in range(ranks)]
        own, mine = TABLES[program.rank % 8], program.rank
        load(program, faults, number)
        with program.range("## sparse_data_dist ##"):
            made = layer_of(program, "fbgemm::permute_2D_sparse_data", "permute_2D_data_kernel", 40_000, 15_000, "")
            lengths = program.collective("all_to_all", world, 40_000, 20_000, after=(made,))
            program.sync("cudaStreamSynchronize", after=(lengths,))
            came = program.exchange_unevenly(world, tuple(each // ranks for each in ids), (ids[mine] // ranks,) * ranks,
                                             60_000 + 2 * ids[mine], after=(lengths,))  # fmt: skip
        bottom = [layer_of(program, "aten::addmm", "bottom_gemm", 120_000, 14_000, WIDE_SHAPES) for _ in range(3)]
        with (
            program.range("## embedding_lookup ##"),
            program.range("fbgemm::split_embedding_codegen_lookup", "operator", f"[[{ids[mine]}], [4000000, 128]]"),
        ):
            program.host(20_000)
            made = program.kernel("split_embedding_codegen_forward_unweighted_kernel", 25 * ids[mine], after=(came,))
        rows = tuple(each * batch * 16 // ranks for each in TABLES[:ranks])
        sent = (own * batch * 16 // ranks,) * ranks
        pooled = program.exchange_unevenly(world, sent, rows, 250_000, after=(made,))
        with program.range("aten::bmm", "operator", WIDE_SHAPES):
            program.host(14_000)
            made = program.kernel("interaction", 150_000, after=(pooled, *bottom))
        for layer in range(4):
            made = layer_of(program, "aten::addmm", "over_gemm", 250_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(4):
            made = layer_of(program, "AddmmBackward0", "over_gemm_backward", 450_000, 14_000, WIDE_BACK_SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, stream=COMM_STREAM + 1, after=(made,))
        back = program.exchange_unevenly(world, rows, sent, 250_000, after=(made,))
        with program.range("fbgemm::split_embedding_backward_codegen", "operator", f"[[{ids[mine]}], [4000000, 128]]"):
            program.host(20_000)
            program.kernel("split_embedding_backward_codegen_rowwise_adagrad_kernel", 50 * ids[mine], after=(back,))
        optimizer(program, (reduced,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
