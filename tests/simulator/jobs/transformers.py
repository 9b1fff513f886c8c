"""Transformers as they are trained: several kernels a block, gathered ahead, clipped, accumulated, evaluated, staged, routed."""

import random
from dataclasses import replace

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import noisy_job, one_forward_one_backward, optimizer

_KERNELS = (
    ("aten::native_layer_norm", "NativeLayerNormBackward0", "vectorized_layer_norm_kernel", 18_000, "[[2, {0}, 4096], [4096]]"),
    ("aten::addmm", "AddmmBackward0", "nvjet_qkv_gemm", 110_000, "[[12288], [{0}, 4096], [4096, 12288]]"),
    ("aten::_scaled_dot_product_flash_attention", "ScaledDotProductFlashAttentionBackward0", "flash_fwd_kernel", 120_000,
     "[[2, 32, {0}, 128], [2, 32, {0}, 128]]"),
    ("aten::addmm", "AddmmBackward0", "nvjet_out_gemm", 40_000, "[[4096], [{0}, 4096], [4096, 4096]]"),
    ("aten::addmm", "AddmmBackward0", "nvjet_up_gemm", 150_000, "[[16384], [{0}, 4096], [4096, 16384]]"),
    ("aten::gelu", "GeluBackward0", "GeluCUDAKernelImpl", 24_000, "[[2, {0}, 16384]]"),
    ("aten::addmm", "AddmmBackward0", "nvjet_down_gemm", 150_000, "[[4096], [{0}, 16384], [16384, 4096]]"),
)  # fmt: skip
"""Operator forward, its node backward, kernel, its time, shapes by the number of tokens."""

_TOKENS = 4096


def block(program: Program, after: tuple[int, ...] = (), *, is_backward: bool = False, times: float = 1.0,
          math_ns: int = 0, host_ns: int = 10_000, size: float = 1.0) -> int:  # fmt: skip
    """A block's kernels; `times` as many tokens, or `size` of the layer; `math_ns`: attention by a slower way takes more."""
    made = -1
    for operator, node, usual, ns, shapes in reversed(_KERNELS) if is_backward else _KERNELS:
        kernel = usual
        name = f"autograd::engine::evaluate_function: {node}" if is_backward else operator
        own_ns = round((2 if is_backward else 1) * ns * times * size)
        if math_ns and "flash" in kernel:
            name, kernel = name.replace("_flash_attention", "_attention_math").replace("Flash", "Math"), "softmax_warp"
            own_ns += math_ns
        with program.range(name, "operator", shapes.format(round(_TOKENS * times))):
            program.host(host_ns)
            made = program.kernel(f"{kernel}_bwd" if is_backward else kernel, own_ns, after=after)
        after = ()
    return made


def clipped(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 3, is_read: bool = True,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """Sharded, gathered a layer ahead; the gradients' norm is reduced, and read (`is_read`) before they are clipped by it.

    `math`: a rank's attention takes the slower way; `compile`: its host compiles again; `snapshot`: a copy out of its GPU
    on a stream of its own, meanwhile its kernels take a twentieth longer.
    """
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        math_ns = time_ns(faults, "math", program.rank, number) // (2 * layers)
        compile_ns = time_ns(faults, "compile", program.rank, number)
        times = 1.05 if hit(faults, "snapshot", program.rank, number) else 1.0
        if compile_ns:
            with program.range("Torch-Compiled Region: 0/1", "operator"):
                program.host(compile_ns, "torch/_dynamo/convert_frame.py(1164): _compile", "frame")
        reduced: tuple[int, ...] = ()
        for is_backward in (False, True):
            with program.range("backward" if is_backward else "forward"):
                ahead = program.collective("all_gather", world, 50_000_000, 260_000)
                for layer in range(layers):
                    got = ahead
                    if layer + 1 < layers:
                        ahead = program.collective("all_gather", world, 50_000_000, 260_000)
                    made = block(program, (got,), is_backward=is_backward, size=times, math_ns=math_ns)
                    if times > 1 and layer == 1 and not is_backward:
                        program.copy("DtoH", 256 << 20, 5_000_000, stream=COPY_STREAM, after=(made,))
                    if layer == 1 and not is_backward:
                        strike(program, faults, number)
                    if is_backward:
                        reduced += (
                            program.collective(
                                "reduce_scatter", world, 50_000_000, 280_000, stream=COMM_STREAM + 1, after=(made,)
                            ),
                        )
        with program.range("clip_grad_norm_"):
            with program.range("aten::linalg_vector_norm", "operator", "[[25000000]]"):
                program.host(8_000)
                norm = program.kernel("multi_tensor_l2norm", 40_000, after=reduced)
            norm = program.collective("all_reduce", world, 1, 15_000, stream=COMM_STREAM + 1, after=(norm,))
            if is_read:
                with program.range("aten::item", "operator"):
                    program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM, after=(norm,))
                    program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        optimizer(program, (norm,))

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def accumulated(ranks: int = 4, steps: int = 4, faults: Faults = (), *, lengths: tuple[float, ...] = (1, 1, 1, 1), layers: int = 2,
                noise: Noise | None = None) -> Job:  # fmt: skip
    """Data parallel in micro-batches of such lengths, each rank in an order of its own; gradients meet in the last one.

    `long`: a rank's micro-batches take that much longer; `fewer`: the step's last micro-batch is half as long.
    """
    world = Group("0", tuple(range(ranks)), "ddp")

    def step(program: Program, number: int) -> None:
        own = [*lengths]
        random.Random(f"{program.rank} {number}").shuffle(own)
        more = time_ns(faults, "long", program.rank, number) / (len(own) * layers * 3 * sum(one[3] for one in _KERNELS))
        if hit(faults, "fewer", program.rank, number):
            own[-1] /= 2
        for micro, times in enumerate(own):
            load(program, faults, number)
            for _ in range(layers):
                block(program, times=times + more)
            if micro == 1:
                strike(program, faults, number)
            for _ in range(layers):
                made = block(program, is_backward=True, times=times + more)
                if micro + 1 == len(own):
                    made = program.collective("all_reduce", world, 60_000_000, 500_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def between_nodes(
    ranks: int = 8, steps: int = 6, faults: Faults = (), *, layers: int = 4, noise: Noise | None = None
) -> Job:
    """Data parallel over two nodes; `crowded`: the network between them is shared with others in some steps."""
    world = Group("0", tuple(range(ranks)), "ddp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        slow_ns = max(time_ns(faults, "crowded", rank, number) for rank in range(ranks)) // layers
        for layer in range(layers):
            block(program)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            made = block(program, is_backward=True)
            made = program.collective("all_reduce", world, 60_000_000, 700_000 + slow_ns, after=(made,))
        optimizer(program, (made,))

    job = noisy_job(ranks, steps, step, (world,), faults, noise)
    return replace(job, hosts=tuple(f"node{rank * 2 // ranks}" for rank in range(ranks)))


def staged(stages: int = 4, data: int = 2, steps: int = 3, faults: Faults = (), *, micro: int = 6, lengths: tuple[float, ...] = (1.0,),
           noise: Noise | None = None) -> Job:  # fmt: skip
    """1F1B of transformer blocks in data parallelism; the last stage loads the labels (`labels`: it takes that long).

    Micro-batches have such `lengths`, one after the other; `wide`: a rank's are a third longer; `edge`: a rank's messages to the next stage take more.
    """
    lines = [Group(f"pp{k}", tuple(range(k, stages * data, data)), "pp") for k in range(data)]
    rows = [Group(f"dp{s}", tuple(range(s * data, (s + 1) * data)), "dp") for s in range(stages)]

    def step(program: Program, number: int) -> None:
        stage, place = divmod(program.rank, data)
        line = lines[place]
        labels_ns = time_ns(faults, "labels", program.rank, number)
        if stage == 0 or labels_ns:
            with program.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
                program.host(30_000 + labels_ns, "collate")
        edge_ns = time_ns(faults, "edge", program.rank, number) // micro
        edge_in_ns = time_ns(faults, "edge", line.ranks[stage - 1], number) // micro if stage else 0
        times, counts = 4 / 3 if hit(faults, "wide", program.rank, number) else 1.0, {True: 0, False: 0}
        made = -1
        for at, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, micro, 1)):
            way, stream, needed = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2), ()
            if 0 <= stage - way < stages:
                slow_ns = edge_in_ns if is_forward else 0
                needed = (
                    program.exchange(
                        line, 8_000_000, 60_000 + slow_ns, receives=(line.ranks[stage - way],), stream=stream
                    ),
                )
            own = times * lengths[counts[is_forward] % len(lengths)]
            counts[is_forward] += 1
            made = block(program, needed, is_backward=not is_forward, times=own)
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if 0 <= stage + way < stages:
                slow_ns = edge_ns if is_forward else 0
                program.exchange(
                    line,
                    8_000_000,
                    60_000 + slow_ns,
                    sends=(line.ranks[stage + way],),
                    stream=stream + 1,
                    after=(made,),
                )
        made = program.collective("all_reduce", rows[stage], 40_000_000, 500_000, stream=COMM_STREAM + 5, after=(made,))
        optimizer(program, (made,))

    return noisy_job(stages * data, steps, step, (*lines, *rows), faults, noise)


def alone(ranks: int = 4, steps: int = 6, faults: Faults = (), *, layers: int = 3, noise: Noise | None = None) -> Job:
    """Replicas that serve alone: no rank meets another."""

    def step(program: Program, number: int) -> None:
        for layer in range(layers):
            block(program)
            if layer == 1:
                strike(program, faults, number)
        program.copy("DtoH", 256, 2_000, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize", after=(program.launched - 1,))

    return noisy_job(ranks, steps, step, (Group("0", tuple(range(ranks))),), faults, noise, ends_synced=False)


def decoded(ranks: int = 4, steps: int = 12, faults: Faults = (), *, layers: int = 6, prefills: tuple[int, ...] = (4, 9),
            noise: Noise | None = None) -> Job:  # fmt: skip
    """Tensor parallel serving: rank 0 plans and tells the others over the CPU, graphs of a layer and all-reduces follow; some steps prefill.

    `plan`: rank 0 plans longer; `sample`: a rank's host takes longer with its samples.
    """
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        times = 8 if number in prefills else 1
        if program.rank == 0:
            with program.range("schedule"):
                plan_ns = 120_000 + time_ns(faults, "plan", 0, number)
                program.host(plan_ns, "vllm/v1/core/sched/scheduler.py(170): schedule", "frame")
        program.meet(world, "broadcast", 40_000)
        for layer in range(layers):
            made = program.graph(
                [
                    ("rms_norm_kernel", 5_000),
                    ("nvjet_qkv_gemm", 30_000 * times),
                    ("paged_attention_v2_kernel", 25_000 * times),
                ]
            )
            made = program.collective("all_reduce", world, 60_000, 15_000 * times, stream=COMPUTE_STREAM, after=(made,))
            made = program.graph([("rms_norm_kernel", 5_000), ("nvjet_mlp_gemm", 60_000 * times)])
            if layer == 1:
                strike(program, faults, number)
            program.collective("all_reduce", world, 60_000, 15_000 * times, stream=COMPUTE_STREAM, after=(made,))
        with program.range("aten::argmax", "operator", "[[64, 128256]]"):
            program.host(9_000)
            program.kernel("reduce_argmax_kernel", 20_000)
        program.copy("DtoH", 512, 2_000, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        program.host(
            80_000 + time_ns(faults, "sample", program.rank, number), "sampler.py(60): gather_outputs", "frame"
        )

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)
