"""Jobs whose load moves from step to step: batches by tokens, experts that are placed anew, snapshots in some steps."""

import random

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import after_of, noisy_job, optimizer


def by_tokens(ranks: int = 4, steps: int = 8, faults: Faults = (), *, layers: int = 6, spread: float = 0.3, seed: int = 1,
              is_sharded: bool = False, noise: Noise | None = None) -> Job:  # fmt: skip
    """A batch holds about as many tokens as any, in texts of one length: attention grows with it, products do not.

    The rank with the longest texts is another one in each step; `long`: a rank's are always longer.
    """
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    drawn = {(rank, step): 1 + spread * chance.uniform(-1, 1) for rank in range(ranks) for step in range(steps)}

    def step(program: Program, number: int) -> None:
        length = round(1024 * drawn[program.rank, number]) + time_ns(faults, "long", program.rank, number) // 2_000
        rows = 8192 // length
        load(program, faults, number)
        for layer in range(2 * layers):
            is_forward, needed = layer < layers, ()
            if is_sharded:
                needed = (program.collective("all_gather", world, 9_000_000, 90_000),)
            times = 1 if is_forward else 2
            after_of(program, "aten::linear" if is_forward else "AddmmBackward0", "gemm_nt" if is_forward else "gemm_nn",
                     200_000 * times, needed, 14_000, f"[[{rows * length}, 1024], [1024, 1024]]")  # fmt: skip
            made = after_of(program, "aten::_flash_attention_forward" if is_forward else "FlashAttnFuncBackward",
                            "flash_fwd_kernel" if is_forward else "flash_bwd_kernel", 250 * length * times, (), 14_000,
                            f"[[{rows}, {length}, 16, 64]]")  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            if not is_forward:
                made = program.collective("reduce_scatter" if is_sharded else "all_reduce", world, 9_000_000, 150_000,
                                          stream=COMM_STREAM + 1, after=(made,))  # fmt: skip
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def staged_out(ranks: int = 4, steps: int = 8, faults: Faults = (), *, layers: int = 6, saves: tuple[int, ...] = (2, 5),
               noise: Noise | None = None) -> Job:  # fmt: skip
    """Data parallel; in steps `saves` all copy their states out beside the next step, and wait for it before the optimizer.

    `stage`: a rank's copies take longer; `write`: the thread that writes them costs the launching thread so much; `net`:
    what all-reduces take more, `hiccup`: one kernel of a rank.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        copied: tuple[int, ...] = ()
        net_ns = time_ns(faults, "net", program.rank, number) // layers
        hiccup_ns = time_ns(faults, "hiccup", program.rank, number)
        if number in saves:
            with program.range("async_save"):
                for _ in range(4):
                    program.host(9_000)
                    last = program.copy("DtoH", 96 << 20,
                                        600_000 + time_ns(faults, "stage", program.rank, number) // 4)  # fmt: skip
                copied = (last,)
            program.aside(4_000_000, "torch/distributed/checkpoint/filesystem.py(310): write_data")
        for layer in range(2 * layers):
            is_forward = layer < layers
            made = after_of(program, "aten::linear" if is_forward else "AddmmBackward0",
                            "forward_gemm" if is_forward else "backward_gemm",
                            (250_000 if is_forward else 500_000) + (hiccup_ns if layer == 4 else 0), ())  # fmt: skip
            if hit(faults, "write", program.rank, number):
                program.host(time_ns(faults, "write", program.rank, number) // (2 * layers), "")
            if layer == 1:
                strike(program, faults, number)
            if not is_forward:
                made = program.collective("all_reduce", world, 9_000_000, 180_000 + net_ns, after=(made,))
        if copied:
            program.sync("cudaEventSynchronize", after=copied)
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def prepared_on_hosts(ranks: int = 4, steps: int = 6, faults: Faults = (), *, layers: int = 8,
                      noise: Noise | None = None) -> Job:  # fmt: skip
    """Each batch is mixed and sorted by operators of the CPU, within the host's lead; `pool`: a rank's threads fight for cores."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        times = 1 + time_ns(faults, "pool", program.rank, number) / 3_000_000
        load(program, faults, number)
        with program.range("mixup"):
            for name in ("aten::sort", "aten::index_select", "aten::mul"):
                with program.range(name, "operator", "[[256, 3, 224, 224]]"):
                    program.host(round(1_000_000 * times), "")
        for layer in range(2 * layers):
            is_forward = layer < layers
            made = after_of(program, "aten::conv2d" if is_forward else "ConvolutionBackward0",
                            "conv_fprop" if is_forward else "conv_dgrad", 300_000 if is_forward else 600_000, ())  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            if not is_forward:
                made = program.collective("all_reduce", world, 5_000_000, 120_000, stream=COMM_STREAM, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)
