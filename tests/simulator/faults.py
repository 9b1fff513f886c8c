"""What can go wrong in a simulated job: which ranks, in which steps, by what, for how long."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.simulator.program import COMPUTE_STREAM, Program

EXTRA_SHAPES = "[[8192, 8192], [8192, 8192]]"

LOADER_OF_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@dataclass(frozen=True)
class Fault:
    """Some ranks need longer in some steps.

    Attributes:
        what: `compute`, `host`, `copy`, `data`, `gc`, `free`, `eval`, `malloc`, `save`, `item`; `silent`: nothing of it is
            recorded; `throttle`: all kernels;
            of some jobs also `link` (transfers) and `backward` (its kernels).
        ns: by how much, a step.
        ranks: whose.
        steps: in which; `None` for all.
        factor: how many times as long kernels take (`throttle`).
    """

    what: str
    ns: int
    ranks: tuple[int, ...]
    steps: tuple[int, ...] | None = None
    factor: float = 1.0

    def hits(self, rank: int, step: int) -> bool:
        """Whether the rank has it in the step."""
        return rank in self.ranks and (self.steps is None or step in self.steps)


Faults = tuple[Fault, ...]


def time_ns(faults: Faults, what: str, rank: int, step: int) -> int:
    """How much longer the rank needs in the step by this."""
    return sum(fault.ns for fault in faults if fault.what == what and fault.hits(rank, step))


def hit(faults: Faults, what: str, rank: int, step: int) -> bool:
    """Whether the rank has such a fault in the step."""
    return any(fault.what == what and fault.hits(rank, step) for fault in faults)


def factor(faults: Faults, what: str, rank: int, step: int) -> float:
    """How many times as long something takes the rank in the step."""
    return next((fault.factor for fault in faults if fault.what == what and fault.hits(rank, step)), 1.0)


def in_turn(what: str, ns: int, turns: Sequence[int]) -> Faults:
    """In each step it is another rank's turn."""
    return tuple(Fault(what, ns, (rank,), (step,)) for step, rank in enumerate(turns))


def throttled(program: Program, begin: int, faults: Faults, step: int) -> None:
    """Kernels since an instruction take as much longer as the GPU is slower in the step."""
    for fault in faults:
        if fault.what == "throttle" and fault.hits(program.rank, step):
            program.instructions[begin:] = [
                replace(each, ns=round(each.ns * fault.factor)) if each.kind == "compute" else each
                for each in program.instructions[begin:]
            ]


def load(program: Program, faults: Faults, step: int) -> None:
    """The batch is loaded and copied."""
    with program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        program.host(20_000 + time_ns(faults, "data", program.rank, step), "collate")
    copy_ns = time_ns(faults, "copy", program.rank, step)
    with program.range("aten::to", "operator"):
        program.copy("HtoD", 1 << 20, 50_000 + copy_ns, stream=COMPUTE_STREAM)


def strike(program: Program, faults: Faults, step: int) -> None:
    """In the middle of the forward pass: whatever else is longer."""
    for what, act in _ACTS.items():
        ns = time_ns(faults, what, program.rank, step)
        if ns:
            act(program, ns)


def _compute(program: Program, ns: int) -> None:
    for _ in range(4):
        with program.range("aten::mm", "operator", EXTRA_SHAPES):
            program.kernel("extra_gemm", ns // 4)


def _host(program: Program, ns: int) -> None:
    with program.range("log_metrics"):
        program.host(ns, "train.py(88): log_metrics", "frame")


def _gc(program: Program, ns: int) -> None:
    # What was launched is done first, as where a loss is read.
    program.sync("cudaStreamSynchronize")
    program.host(ns, "gc.collect", "frame")


def _free(program: Program, ns: int) -> None:
    program.sync("cudaStreamSynchronize")
    program.host(ns, "cudaFree", "call")


def _eval(program: Program, ns: int) -> None:
    with program.range("evaluate"):
        for _ in range(10):
            with program.range("aten::conv2d", "operator", "[[8, 3, 224, 224], [64, 3, 7, 7]]"):
                program.kernel("eval_conv", ns // 10)


def _malloc(program: Program, ns: int) -> None:
    for _ in range(3):
        program.host(ns // 3, "cudaMalloc", "call")


def _save(program: Program, ns: int) -> None:
    with program.range("save_checkpoint"):
        program.copy("DtoH", 64 << 20, ns // 4, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize")
        program.host(ns - ns // 4, "torch/serialization.py(900): save", "frame")


def _item(program: Program, ns: int) -> None:
    with program.range("aten::item", "operator"):
        program.sync("cudaStreamSynchronize")
    program.host(ns, "train.py(90): print_loss", "frame")


_ACTS: dict[str, Callable[[Program, int], None]] = {
    "compute": _compute,
    "host": _host,
    "gc": _gc,
    "free": _free,
    "eval": _eval,
    "malloc": _malloc,
    "save": _save,
    "item": _item,
    "silent": lambda program, ns: program.host(ns, ""),
}
