"""Jobs of one GPU, each held up by something else."""

from tests.simulator.faults import Faults, load, strike
from tests.simulator.program import COMPUTE_STREAM, Job, Program
from tests.simulator.workloads import job_of, optimizer

_SHAPES = "[[4096, 4096], [4096, 4096]]"


def trained(ranks: int = 1, steps: int = 6, faults: Faults = (), *, layers: int = 10, kernel_ns: int = 400_000,
            host_ns: int = 15_000, copies_ns: int = 0, is_pageable: bool = False, read_each_layer: bool = False,
            clips: bool = False, frames: int = 0, blocks: int = 264, sampled_ns: int = 0) -> Job:  # fmt: skip
    """One model on each GPU, nothing exchanged.

    A batch is copied for `copies_ns`; `read_each_layer` reads a number of each layer, `clips` the gradients' norm;
    `frames` of Python are recorded around each operator; a graph's neighbours are sampled on the host first.
    """

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        if sampled_ns:
            with program.range("sample_neighbors"):
                program.host(sampled_ns, "sampler.py(40): sample", "frame")
        if copies_ns:
            _upload(program, copies_ns, is_pageable=is_pageable)
        for phase in ("forward", "backward"):
            for layer in range(layers):
                for depth in range(frames):
                    program.host(500, f"torch/nn/modules/module.py({depth}): _call_impl", "frame")
                with program.range(f"aten::{phase}_linear", "operator", _SHAPES):
                    program.host(host_ns)
                    program.kernel(f"{phase}_gemm", kernel_ns, blocks=blocks)
                if phase == "forward" and layer == 1:
                    strike(program, faults, number)
                if read_each_layer:
                    with program.range("aten::item", "operator"):
                        program.sync("cudaStreamSynchronize")
                    program.host(30_000, "print_stats", "range")
        if clips:
            with program.range("clip_grad_norm_"):
                program.kernel("foreach_norm", 60_000)
                with program.range("aten::item", "operator"):
                    program.sync("cudaStreamSynchronize")
        optimizer(program, ())

    return job_of(ranks, steps, step, (), faults, ends_synced=False)


def _upload(program: Program, ns: int, *, is_pageable: bool) -> None:
    with program.range("aten::copy_", "operator"):
        memory = "Pageable" if is_pageable else "Pinned"
        program.copy("HtoD", 256 << 20, ns, stream=COMPUTE_STREAM, memory=memory)
        if is_pageable:
            program.sync("cudaStreamSynchronize")
