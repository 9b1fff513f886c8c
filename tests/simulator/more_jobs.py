"""Jobs that people have and nobody had simulated: stale microbatches, validation, heat, one-way links, second threads."""

from collections.abc import Sequence
from dataclasses import replace

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, optimizer

_SHAPES = "[[4096, 768], [768, 768]]"


def late_last_microbatch(ranks: int = 4, steps: int = 5, faults: Faults = (), *, micro: int = 4) -> Job:
    """Accumulates gradients; the fault strikes in the last microbatch, while its gradients are exchanged."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for place in range(micro):
            for layer in range(8):
                name = "forward_gemm" if layer < 4 else "backward_gemm"
                made = layer_of(program, "aten::linear", name, 300_000, 15_000, _SHAPES)
                if place == micro - 1 and layer == 5:
                    strike(program, faults, number)
                    made = program.launched - 1
                if place == micro - 1 and layer >= 4:
                    reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def redundant_exchanges(ranks: int = 4, steps: int = 4, faults: Faults = (), *, micro: int = 4) -> Job:
    """Accumulates gradients and exchanges all of them in every microbatch."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for _ in range(micro):
            with program.range("forward"):
                for _ in range(3):
                    layer_of(program, "aten::linear", "forward_gemm", 250_000, 12_000, _SHAPES)
            with program.range("backward"):
                for layer in range(3):
                    made = layer_of(program, "aten::linear", "backward_gemm", 250_000, 12_000, _SHAPES)
                    reduced = program.collective("all_reduce", world, 4_000_000 + layer, 900_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def heating(ranks: int = 4, steps: int = 8, faults: Faults = (), *, hot: int = 2, by_step: float = 0.05) -> Job:
    """One GPU takes longer for its kernels from step to step (where `faults` has `throttle`)."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        begin, reduced = len(program.instructions), -1
        for _ in range(10):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        is_hot = program.rank == hot and any(fault.what == "throttle" for fault in faults)
        factor = 1 + by_step * number if is_hot else 1.0
        program.instructions[begin:] = [
            replace(each, ns=round(each.ns * factor)) if each.kind == "compute" else each
            for each in program.instructions[begin:]
        ]
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), tuple(fault for fault in faults if fault.what != "throttle"))


def ring(ranks: int = 4, steps: int = 5, faults: Faults = (), *, rounds: int = 6, in_lockstep: bool = False) -> Job:
    """Context parallel: blocks of keys go round a ring beside attention.

    `in_lockstep` a block goes on once its attention has ended. The fault `link` slows what a rank sends; with `block`
    a rank's part of the sequence takes so much longer, in kernels of the same length, in every round.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        following, before = (program.rank + 1) % ranks, (program.rank - 1) % ranks
        needed: tuple[int, ...] = ()
        for place in range(rounds):
            slow_ns = (
                max(time_ns(faults, "link", program.rank, number), time_ns(faults, "link", before, number)) // rounds
            )
            ended = (program.launched - 1,) if in_lockstep and place else ()
            sent = program.exchange(world, 4_000_000, 200_000 + slow_ns, sends=(following,), receives=(before,),
                                    after=ended)  # fmt: skip
            with program.range("aten::scaled_dot_product_attention", "operator", _SHAPES):
                program.host(15_000)
                for _ in range(1 + time_ns(faults, "block", program.rank, number) // 500_000):
                    program.kernel("flash_fwd", 500_000, after=needed)
            if place == 1:
                strike(program, faults, number)
            needed = (sent,)
        reduced = program.collective("all_reduce", world, 8_000_000, 200_000, stream=COMM_STREAM + 1,
                                     after=(program.launched - 1,))  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def saves_with_barrier(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Data parallel with a flag reduced at the end of every step as a barrier, so that all wait while rank 0 saves."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for _ in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))
        strike(program, faults, number)
        program.collective("all_reduce", world, 1, 20_000, after=(program.launched - 1,))

    return job_of(ranks, steps, step, (world,), faults)


def offloads_activations(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 6) -> Job:
    """Data parallel; a rank with the fault `copy` sends its activations to the host and back in every layer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        copy_ns = time_ns(faults, "copy", program.rank, number) // (2 * layers)
        load(program, tuple(fault for fault in faults if fault.what != "copy"), number)
        reduced = -1
        for layer in range(2 * layers):
            needed: tuple[int, ...] = ()
            if copy_ns and layer >= layers:
                needed = (program.copy("HtoD", 16 << 20, copy_ns // 2),)
            name = "forward_gemm" if layer < layers else "backward_gemm"
            with program.range("aten::linear", "operator", _SHAPES):
                program.host(15_000)
                made = program.kernel(name, 300_000, after=needed)
            if copy_ns and layer < layers:
                made = program.copy("DtoH", 32 << 20, copy_ns, stream=COMPUTE_STREAM, after=(made,))
            if layer >= layers:
                reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def uneven_prefetch(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 8) -> Job:
    """ZeRO-3 that gathers two layers ahead in places and none in others."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        gathered: dict[int, int] = {}
        for layer in range(2 * layers):
            ahead = 3 if layer % 3 == 0 else 1
            for place in range(layer, min(layer + ahead, 2 * layers)):
                if place not in gathered:
                    program.host(8_000)
                    gathered[place] = program.collective("all_gather", world, 8_000_000 + place, 90_000)
            with program.range("aten::linear", "operator", _SHAPES):
                program.host(12_000)
                made = program.kernel("gemm", 280_000, after=(gathered[layer],))
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers:
                made = program.collective("reduce_scatter", world, 8_000_000, 90_000, stream=COMM_STREAM + 1,
                                          after=(made,))  # fmt: skip
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def hot_expert(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 4, has_shapes: bool = True) -> Job:
    """Mixture of experts: the rank with the fault `compute` holds the expert to which most tokens go, in every layer.

    Without shapes one kernel of a fixed grid computes as many tokens as it is given.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        more_ns = time_ns(faults, "compute", program.rank, number) // (2 * layers)
        for _ in range(2 * layers):
            before = layer_of(program, "aten::linear", "dense_gemm", 200_000, 15_000, _SHAPES)
            sent = program.collective("all_to_all", world, 1_000_000, 60_000, after=(before,))
            tokens = 4096 + more_ns // 100
            shapes = f"[[{tokens}, 768], [768, 3072]]" if has_shapes else ""
            with program.range("aten::_grouped_mm" if has_shapes else "moe::run", "operator", shapes):
                program.host(15_000)
                name = "expert_gemm" if has_shapes else "batched_persistent"
                done = program.kernel(name, 300_000 + more_ns, after=(sent,))
            back = program.collective("all_to_all", world, 1_000_000, 60_000, after=(done,))
            program.kernel("combine", 30_000, after=(back,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), tuple(fault for fault in faults if fault.what != "compute"))


def slow_at_all(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, kernels: int = 120, times: float = 2.0, more: float = 1.0
) -> Job:
    """Kernels of which hosts launch one after the other; a host that the fault `host` names takes longer for each.

    So it is where another thread holds Python's lock, other processes take the cores, or a rank is recorded with stacks.
    It launches `more` times as many, as where one rank keeps an average of its weights.
    """
    world = Group("0", tuple(range(ranks)))
    slow = {rank for fault in faults for rank in fault.ranks if fault.what == "host"}

    def step(program: Program, number: int) -> None:
        load(program, (), number)
        is_slow = program.rank in slow
        each_ns = round(20_000 * (times if is_slow else 1.0))
        for _ in range(round(kernels * (more if is_slow else 1.0))):
            with program.range("aten::add", "operator", _SHAPES):
                program.host(each_ns)
                made = program.kernel("elementwise_kernel", 12_000)
        reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), ())


def validates(ranks: int = 4, steps: int = 7, faults: Faults = (), *, every: int = 3) -> Job:
    """Every rank validates in every third step: long steps that are nobody's fault."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 15_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))
        if number % every == 0:
            with program.range("validate"):
                for _ in range(12):
                    layer_of(program, "aten::linear", "eval_gemm", 400_000, 15_000, "[[8192, 768], [768, 768]]")

    return job_of(ranks, steps, step, (world,), faults)


def two_models(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Two models in turn, each with gradients of its own group name, as a generator and its critic."""
    first, second = (Group(name, tuple(range(ranks)), name) for name in ("generator", "critic"))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for group, name in ((first, "generator_gemm"), (second, "critic_gemm")):
            for layer in range(5):
                made = layer_of(program, "aten::linear", name, 400_000, 15_000, _SHAPES)
                if layer == 1 and group is second:
                    strike(program, faults, number)
                reduced = program.collective("all_reduce", group, 3_000_000, 120_000, after=(made,))
            optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (first, second), faults)


def pipeline_with_extra(stages: Sequence[int] = (0, 1, 2, 3), steps: int = 4, faults: Faults = (), *,
                        microbatches: int = 6) -> Job:  # fmt: skip
    """A pipeline, all forward then all backward; the fault strikes before the first microbatch."""
    ranks = tuple(stages)
    world = Group("0", ranks)
    last = ranks[-1]

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        strike(program, faults, number)
        for is_forward in (True, False):
            source = program.rank - 1 if is_forward else program.rank + 1
            target = program.rank + 1 if is_forward else program.rank - 1
            stream = COMM_STREAM + (0 if is_forward else 2)
            for _ in range(microbatches):
                needed: tuple[int, ...] = ()
                if 0 <= source <= last:
                    needed = (program.exchange(world, 1_000_000, 30_000, receives=(source,), stream=stream),)
                with program.range("aten::linear" if is_forward else "aten::linear_backward", "operator", _SHAPES):
                    program.host(12_000)
                    name, ns = ("forward_gemm", 400_000) if is_forward else ("backward_gemm", 800_000)
                    done = program.kernel(name, ns, after=needed)
                if 0 <= target <= last:
                    program.exchange(world, 1_000_000, 30_000, sends=(target,), stream=stream + 1, after=(done,))
        optimizer(program, ())

    return job_of(len(ranks), steps, step, (world,), faults)
