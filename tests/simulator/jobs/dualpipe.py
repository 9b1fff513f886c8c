"""DualPipe's order of passes: microbatches enter at both ends, and each rank has a stage of either way."""

import pandas as pd

from tests.simulator.faults import Faults, strike
from tests.simulator.noise import Noise, noisy
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, optimizer

_PHASES = {"F": "forward", "B": "backward", "I": "backward of inputs", "W": "backward of weights"}


def stretches(ranks: int, microbatches: int, lengths: dict[str, int], *, are_apart: bool = False) -> pd.DataFrame:
    """The rows of `pipeline_schedule` of two steps; `are_apart`: no two ways number a microbatch alike.

    Half of the microbatches goes each way, at least as many as there are ranks. B is a whole backward pass, I + W one
    in two parts.
    """
    rows = [
        {"rank": rank, "step": step, "phase": _PHASES[what], "virtual_stage": rank if not way else ranks - 1 - rank,
         "microbatch": number + (microbatches if are_apart and way else 0), "compute_ns": lengths[what],
         "is_beside": is_beside}
        for rank in range(ranks)
        for step in range(2)
        for what, way, number, is_beside in _passes(rank, ranks, microbatches)
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(slot=range(len(rows))).astype({"virtual_stage": "Int64"})


def job(ranks: int, microbatches: int, lengths: dict[str, int], steps: int = 3, faults: Faults = ()) -> Job:
    """Carries the order out, with ranges of forward and backward alone; passes beside each other send together."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        strike(program, faults, number)
        passes = _passes(program.rank, ranks, microbatches)
        while passes:
            unit = 2 if passes[0][0] == "F" and len(passes) > 1 and passes[1][3] else 1
            _run(program, world, passes[:unit], lengths)
            passes = passes[unit:]
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def of_eight(
    ranks: int = 8, steps: int = 3, faults: Faults = (), *, microbatches: int = 20, noise: Noise | None = None
) -> Job:
    """The same with usual lengths: passes of 0.4 and 0.8 ms."""
    return noisy(job(ranks, microbatches, {"F": 400_000, "B": 800_000, "I": 400_000, "W": 400_000}, steps, faults),
                 noise or Noise(), faults)  # fmt: skip


def _run(program: Program, world: Group, unit: list[tuple[str, int, int, bool]], lengths: dict[str, int]) -> None:
    sources, targets = [], []
    for what, way, _, _ in unit if unit[0][0] != "W" else []:
        ahead = 1 if (what == "F") == (way == 0) else -1
        sources += [peer for peer in (program.rank - ahead,) if peer in world.ranks]
        targets += [peer for peer in (program.rank + ahead,) if peer in world.ranks]

    def stream(peer: int) -> int:
        return COMM_STREAM + 5 + 2 * (peer > program.rank)

    needed = tuple(program.exchange(world, 100_000, 5_000, receives=(peer,), stream=stream(peer)) for peer in sources)
    made: tuple[int, ...] = ()
    for what, *_ in unit:
        with program.range("forward" if what == "F" else "backward"):
            for kernel, ns in _kernels(what, lengths[what]):
                with program.range("aten::linear", "operator", "[[1024, 768], [768, 768]]"):
                    program.host(4_000)
                    made = (program.kernel(kernel, ns, after=needed),)
                needed = ()
    for peer in targets:
        program.exchange(world, 100_000, 5_000, sends=(peer,), stream=stream(peer) + 1, after=made)


def _kernels(what: str, ns: int) -> list[tuple[str, int]]:
    """A pass's kernels: a whole backward pass has those of both parts."""
    if what == "B":
        return [("input_gemm", ns // 2), ("weight_gemm", ns // 2)]
    return [({"F": "forward_gemm", "I": "input_gemm", "W": "weight_gemm"}[what], ns)]


class _Order:
    """Passes of one rank as they are run, numbered by kind and way."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, int, bool]] = []
        self.later: list[tuple[int, int]] = []
        self._counts: dict[tuple[bool, int], int] = {}

    def run(self, what: str, way: int, *, is_beside: bool = False) -> None:
        key = (what == "F", way)
        number = self._counts[key] = self._counts.get(key, -1) + 1
        self.found.append((what, way, number, is_beside))
        if what == "I":
            self.later.append((way, number))

    def both(self, forward: int, backward: int, *, is_beside: bool = True) -> None:
        self.run("F", forward, is_beside=is_beside)
        self.run("B", backward, is_beside=is_beside)

    def weights(self) -> None:
        self.found.append(("W", *self.later.pop(0), False))


def _passes(rank: int, ranks: int, microbatches: int) -> list[tuple[str, int, int, bool]]:
    """(pass, way, microbatch, whether it runs beside another one) of one rank; its own way is the nearer end's."""
    inner = min(rank, ranks - 1 - rank)
    outer = ranks // 2 - inner - 1
    near, far = (0, 1) if rank < ranks // 2 else (1, 0)
    order = _Order()
    for way in [near] * (2 * outer) + [near, far] * (inner + 1):
        order.run("F", way)
    for _ in range(outer):
        order.run("I", far)
        order.weights()
        order.run("F", far)
    for place in range(microbatches // 2 - ranks + inner + 1):
        order.both(near, far, is_beside=place > 0 or outer > 0)
        order.both(far, near)
    for _ in range(outer):
        order.run("B", far)
        order.both(far, near)
    whole = inner + 1  # of the last passes the first half is whole
    for place, way in enumerate([far, near] * (inner + 1)):
        order.run("B" if place < whole else "I", way)
    for _ in range(outer):
        order.weights()
        order.run("I", near)
    while order.later:
        order.weights()
    return order.found
