"""Parameters sharded within a host and kept through backward; hosts reduce over a slower network; saved by a thread."""

from tests.simulator.faults import Faults, factor, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Job, Program, adjacent, strided
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, after_of, noisy_job, optimizer


def kept(shard: int = 4, hosts: int = 2, steps: int = 5, faults: Faults = (), *, layers: int = 6, host_ns: int = 14_000,
         noise: Noise | None = None) -> Job:  # fmt: skip
    """Gathered a layer ahead in forward, kept for backward, scattered, reduced between hosts.

    `network`: the reductions between hosts take longer, a step; `thief`: a thread that saves takes the rank's CPU, so that
    its work takes so many times as long; `saves`: such a thread runs, and takes nothing.
    """
    rows, columns = adjacent("shard", shard, hosts, "fsdp_shard"), strided("replicate", hosts, shard, "fsdp_replicate")

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // shard], columns[program.rank % shard]
        times = factor(faults, "thief", program.rank, number)
        own_ns = round(host_ns * times)
        load(program, faults, number)
        if times > 1 or hit(faults, "saves", program.rank, number):
            program.aside(8_000_000, "torch/distributed/checkpoint/filesystem.py(310): _write_items")
        held = program.collective("all_gather", row, 20_000_000, 120_000)
        for layer in range(layers):
            ready, held = held, program.collective("all_gather", row, 20_000_000, 120_000)
            after_of(program, "aten::linear", "forward_gemm", 300_000, (ready,), own_ns, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        network_ns = 150_000 + time_ns(faults, "network", program.rank, number) // layers
        for _ in range(layers):
            made = after_of(program, "AddmmBackward0", "backward_gemm", 600_000, (), own_ns, WIDE_BACK_SHAPES)
            made = program.collective("reduce_scatter", row, 20_000_000, 120_000, stream=COMM_STREAM + 1, after=(made,))
            made = program.collective(
                "all_reduce", column, 5_000_000, network_ns, stream=COMM_STREAM + 2, after=(made,)
            )
        optimizer(program, (made,))

    return noisy_job(shard * hosts, steps, step, (*rows, *columns), faults, noise)
