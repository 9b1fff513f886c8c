"""A fifth lot of kinds that no other file has: leaders of nodes, gossip, owned matrices, two kinds of GPUs, open pipelines."""

import random
from dataclasses import replace

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.third_jobs import after_of, hit
from tests.simulator.unseen_jobs import SHAPES, drawn
from tests.simulator.workloads import layer_of, optimizer, wider

_BACK = "[[4096, 2048], [4096, 2048]]"


def led(nodes: int = 4, gpus: int = 4, steps: int = 4, faults: Faults = (), *, buckets: int = 5,
        noise: Noise | None = None) -> Job:  # fmt: skip
    """Gradients in three moves: reduced within a node, by its first GPU with those of other nodes, sent back within it.

    `wire`: what the moves between nodes take more.
    """
    rows = [Group(f"n{n}", tuple(range(n * gpus, (n + 1) * gpus)), "node") for n in range(nodes)]
    backs = [Group(f"b{n}", row.ranks, "node") for n, row in enumerate(rows)]
    leaders = Group("leaders", tuple(range(0, nodes * gpus, gpus)), "leaders")

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // gpus]
        slow_ns = time_ns(faults, "wire", program.rank, number) // buckets
        load(program, faults, number)
        for layer in range(2 * buckets):
            layer_of(program, "aten::linear", "forward_gemm", 240_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(buckets):
            layer_of(program, "aten::linear_backward", "backward_gemm", 450_000, 14_000, _BACK)
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 450_000, 14_000, _BACK)
            made = program.collective("all_reduce", row, 8_000_000, 90_000, after=(made,))
            if program.rank in leaders.ranks:
                made = program.collective(
                    "all_reduce", leaders, 8_000_000, 260_000 + slow_ns, stream=COMM_STREAM + 1, after=(made,)
                )
            made = program.collective(
                "broadcast", backs[program.rank // gpus], 8_000_000, 80_000, stream=COMM_STREAM + 2, after=(made,)
            )
        optimizer(program, (made,))

    job = drawn(nodes * gpus, steps, step, (*rows, *backs, leaders), faults, noise)
    return replace(job, hosts=tuple(f"node{rank // gpus}" for rank in range(nodes * gpus)))


def gossip(ranks: int = 4, steps: int = 8, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """After each step a rank averages its parameters with one neighbour, in turn the left and the right one."""
    world = Group("0", tuple(range(ranks)), "gossip")

    def step(program: Program, number: int) -> None:
        way = 1 if (program.rank + number) % 2 else -1
        peer = (program.rank + way) % ranks
        load(program, faults, number)
        for layer in range(10):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(10):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 14_000, _BACK)
        optimizer(program, (made,))
        got = program.exchange(
            world, 40_000_000, 700_000, sends=(peer,), receives=(peer,), after=(program.launched - 1,)
        )
        after_of(program, "aten::lerp_", "lerp", 60_000, (got,), 8_000, "[[40000000]]")

    return drawn(ranks, steps, step, (world,), faults, noise)


def owned(ranks: int = 4, steps: int = 4, faults: Faults = (), *, each: int = 4, iterations: int = 5, ns: int = 130_000,
          noise: Noise | None = None) -> Job:  # fmt: skip
    """Each rank makes the matrices that it owns orthogonal, by a few products each; then all gather them. `own`: more of them."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(10):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 14_000, SHAPES)
        for _ in range(10):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 14_000, _BACK)
            made = program.collective("reduce_scatter", world, 6_000_000, 150_000, after=(made,))
        many = each + time_ns(faults, "own", program.rank, number) // (iterations * ns)
        with program.range("Optimizer.step#Muon.step"):
            for place in range(many):
                for _ in range(iterations):
                    made = after_of(program, "aten::addmm", "newton_schulz_gemm", ns, (made,) if not place else (),
                                    9_000, "[[2048, 2048], [2048, 2048], [2048, 2048]]")  # fmt: skip
        strike(program, faults, number)
        program.collective("all_gather", world, 60_000_000, 900_000, after=(program.launched - 1,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def preconditioned(ranks: int = 8, steps: int = 7, faults: Faults = (), *, every: int = 3, eigh_ns: int = 9_000_000,
                   noise: Noise | None = None) -> Job:  # fmt: skip
    """Every so many steps each rank finds the roots of its own blocks, and all gather them; `eigh`: a rank's are larger."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 220_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 440_000, 14_000, _BACK)
            made = program.collective("all_reduce", world, 8_000_000, 180_000, after=(made,))
        if number % every == 1:
            ns = eigh_ns + time_ns(faults, "eigh", program.rank, number)
            with program.range("Optimizer.step#Shampoo.step"):
                for _ in range(12):
                    made = after_of(program, "aten::linalg_eigh", "syevd_kernel", ns // 12, (made,), 20_000,
                                    f"[[{2048 * ns // eigh_ns}, {2048 * ns // eigh_ns}]]")  # fmt: skip
                made = program.collective("all_gather", world, 40_000_000, 600_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def two_kinds(
    ranks: int = 8, steps: int = 4, faults: Faults = (), *, times: float = 1.7, noise: Noise | None = None
) -> Job:
    """Half of the GPUs are older, `times` as slow; their batches are smaller in proportion, where not the fault `alike` is."""
    world = Group("0", tuple(range(ranks)), "dp")
    gpus = tuple("NVIDIA H200" if rank < ranks // 2 else "NVIDIA A100-SXM4-80GB" for rank in range(ranks))

    def step(program: Program, number: int) -> None:
        is_older = program.rank >= ranks // 2
        samples = round(32 / times) if is_older and not hit(faults, "alike", program.rank, number) else 32
        name, ns = ("ampere_bf16_gemm", 8_000 * times) if is_older else ("nvjet_hsh_gemm", 8_000)
        load(program, faults, number)
        for layer in range(10):
            layer_of(
                program, "aten::linear", name, round(ns * samples), 14_000, f"[[{samples * 128}, 2048], [2048, 2048]]"
            )
            if layer == 1:
                strike(program, faults, number)
        for _ in range(10):
            made = layer_of(program, "aten::linear_backward", f"{name}_backward", round(2 * ns * samples), 14_000,
                            f"[[{samples * 128}, 2048], [{samples * 128}, 2048]]")  # fmt: skip
            made = program.collective("all_reduce", world, 8_000_000, 180_000, after=(made,))
        optimizer(program, (made,))

    return replace(drawn(ranks, steps, step, (world,), faults, noise), gpus=gpus)


def unflushed(stages: int = 4, microbatches: int = 6, steps: int = 4, faults: Faults = (), *, stage_ns: tuple[int, ...] = (),
              noise: Noise | None = None) -> Job:  # fmt: skip
    """A pipeline that is never emptied: one forward, one backward for ever, weights two steps old."""
    world = Group("0", tuple(range(stages)), "pp")

    def passes(stage: int, number: int) -> list[bool]:
        """Whether forward, of the step's passes: the first step also fills the pipeline, the last one empties it."""
        lead = stages - 1 - stage
        if number == 0:
            return [True] * lead + [True, False] * microbatches
        if number == steps - 1:
            return [True, False] * (microbatches - lead) + [False] * lead
        return [True, False] * microbatches

    def step(program: Program, number: int) -> None:
        stage = program.rank
        each_ns = stage_ns or (500_000,) * stages
        ns = each_ns[stage]
        load(program, faults, number)
        for place, is_forward in enumerate(passes(stage, number)):
            way, stream, needed = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2), ()
            if 0 <= stage - way < stages:
                needed = (program.exchange(world, 2_000_000, 40_000, receives=(stage - way,), stream=stream),)
            made = after_of(program, "aten::linear" if is_forward else "aten::linear_backward",
                            "forward_gemm" if is_forward else "backward_gemm", ns if is_forward else 2 * ns, needed,
                            shapes=wider(each_ns, stage))  # fmt: skip
            if place == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if 0 <= stage + way < stages:
                program.exchange(world, 2_000_000, 40_000, sends=(stage + way,), stream=stream + 1, after=(made,))
        optimizer(program, ())

    return drawn(stages, steps, step, (world,), faults, noise, ends_synced=False)


def own_links(tensor: int = 2, data: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 8,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """Tensor within data parallel, reduced in pieces beside backward; a GPU's links may be slow, in both its groups.

    `port`: what its tensor group's transfers take more; `reach`: its data group's.
    """
    rows = [Group(f"tp{n}", tuple(range(n * tensor, (n + 1) * tensor)), "tp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, tensor * data, tensor)), "dp") for n in range(tensor)]

    def more_ns(what: str, group: Group, number: int) -> int:
        return max(time_ns(faults, what, rank, number) for rank in group.ranks)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        load(program, faults, number)
        made = program.launched - 1
        for layer in range(2 * layers):
            made = after_of(program, "aten::mm", "gemm", 230_000 if layer < layers else 460_000, (made,))
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective(
                "all_reduce", row, 2_000_000, 45_000 + more_ns("port", row, number) // (2 * layers), after=(made,)
            )
            if layer >= layers:
                last = program.collective(
                    "all_reduce", column, 6_000_000, 200_000 + more_ns("reach", column, number) // layers, stream=COMM_STREAM + 1,
                    after=(made,),
                )  # fmt: skip
        optimizer(program, (last,))

    return drawn(tensor * data, steps, step, (*rows, *columns), faults, noise)


def bound_by_links(ranks: int = 8, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Data parallel whose all-reduces take twice as long as backward: what a rank computes longer beside them costs nothing.

    `backward`: what a rank's backward takes more.
    """
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for layer in range(8):
            more_ns = time_ns(faults, "backward", program.rank, number) // 7 if layer else 0
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000 + more_ns, 14_000, _BACK)
            made = program.collective("all_reduce", world, 40_000_000, 1_000_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def light_first(stages: int = 4, microbatches: int = 8, steps: int = 3, faults: Faults = (), *,
                stage_ns: tuple[int, ...] = (250_000, 550_000, 550_000, 550_000), noise: Noise | None = None) -> Job:  # fmt: skip
    """All forward, then all backward, again forward in backward; the first stage is light."""
    world = Group("0", tuple(range(stages)), "pp")

    def step(program: Program, number: int) -> None:
        stage, ns = program.rank, stage_ns[program.rank]
        load(program, faults, number)
        for is_forward in (True, False):
            way, stream = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2)
            for place in range(microbatches):
                needed: tuple[int, ...] = ()
                if 0 <= stage - way < stages:
                    needed = (program.exchange(world, 2_000_000, 40_000, receives=(stage - way,), stream=stream),)
                made = after_of(program, "aten::linear", "forward_gemm", ns, needed, shapes=wider(stage_ns, stage))
                if not is_forward:
                    made = after_of(
                        program, "aten::linear_backward", "backward_gemm", 2 * ns, (), shapes=wider(stage_ns, stage)
                    )
                if place == 1 and is_forward:
                    strike(program, faults, number)
                    made = program.launched - 1
                if 0 <= stage + way < stages:
                    program.exchange(world, 2_000_000, 40_000, sends=(stage + way,), stream=stream + 1, after=(made,))
        optimizer(program, ())

    return drawn(stages, steps, step, (world,), faults, noise)


def next_door(
    ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 6, noise: Noise | None = None
) -> Job:
    """Sharded; another process computes on a GPU now and then (`shared`): some of its kernels take up to twice as long."""
    world = Group("0", tuple(range(ranks)), "fsdp")
    chance = random.Random("next door")

    def step(program: Program, number: int) -> None:
        is_shared = hit(faults, "shared", program.rank, number)
        load(program, faults, number)
        made = -1
        for layer in range(2 * layers):
            gathered = program.collective("all_gather", world, 12_000_000, 110_000)
            for _ in range(3):
                times = chance.choice((1.0, 1.2, 1.6, 2.0)) if is_shared else 1.0
                ns = round((130_000 if layer < layers else 260_000) * times)
                name = "aten::linear" if layer < layers else "aten::linear_backward"
                made = after_of(program, name, "forward_gemm" if layer < layers else "backward_gemm", ns, (gathered,))
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers:
                made = program.collective(
                    "reduce_scatter", world, 12_000_000, 120_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def lengthening(ranks: int = 4, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """A curriculum: the sequences of all ranks grow from step to step."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        length = 1024 + 256 * number
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", world, 12_000_000, 130_000)
            made = after_of(
                program, "aten::linear", "gemm", 200 * length, (gathered,), shapes=f"[[{length}, 2048], [2048, 2048]]"
            )
            made = layer_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", length * length // 8, 14_000,
                            f"[[1, {length}, 16, 128]]")  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            if layer >= 6:
                made = program.collective(
                    "reduce_scatter", world, 12_000_000, 140_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)
