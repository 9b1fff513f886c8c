"""Record jobs twice, with a fault and without it, so that what-if's predictions can be held against what happened.

    torchrun --standalone --nproc_per_node=2 experiments/record_pairs.py --out profile/pairs

Both jobs run in one process and take turns, so that a machine that becomes slower does not pass for the fault. Each
pair leaves `<out>/<pair>/{before,after}/rank_<r>/…pt.trace.json.gz` and `<out>/<pair>/steps.json` with the un-profiled
step times of both sides, a list for each turn. `experiments/what_if_pairs.py` predicts the second from the first.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from traceanalyzer.runners.model import Batch, Block
from traceanalyzer.runners.options import parse
from traceanalyzer.runners.recording import profiled, span
from traceanalyzer.runners.run_json import StepTimer, from_all_ranks, slowest
from traceanalyzer.runners.strategies import strategy_named
from traceanalyzer.runners.strategies.base import Job
from traceanalyzer.runners.train import Steps
from traceanalyzer.runners.world import choose_device, joined

if TYPE_CHECKING:
    from traceanalyzer.runners.strategies.base import Strategy
    from traceanalyzer.runners.world import World

GPU_BOUND = ("--layers", "12", "--d-model", "1024", "--heads", "16", "--seq", "1024", "--batch", "16")
HOST_BOUND = ("--layers", "12", "--d-model", "512", "--heads", "8", "--seq", "256", "--batch", "4")
LONGER = ("--layers", "12", "--d-model", "1024", "--heads", "16", "--seq", "1792", "--batch", "12")
ACCUMULATED = (*GPU_BOUND[:-1], "8", "--accumulate", "4")
SMALL = ("--device", "cpu", "--model", "tiny", "--d-model", "64", "--heads", "4", "--seq", "32", "--batch", "8")
PIPELINE = ("--layers", "12", "--d-model", "1024", "--heads", "16", "--seq", "1024", "--batch", "32")


@dataclass(frozen=True, slots=True)
class Side:
    """One recording: a strategy with its options, and what is done to it.

    Attributes:
        strategy: of the runners.
        options: of the runners' command line.
        products: matrix products of 8192² more a step, by rank.
        host_ms: time that the host computes in Python before the forward pass, by rank.
        loader_ms: time that the next batch takes, by rank.
        gc_objects: objects that a garbage collection goes through in every step, by rank.
        copy_mib: pageable memory that is copied to the GPU, and waited for, in every step.
        is_synchronised: the host waits for the GPU after every block.
        is_alone: gradients are not exchanged.
        is_compressed: gradients are exchanged in bfloat16.
        gathers_late: ZeRO-3 gathers a block when it is used, none ahead.
        recomputes_every: of so many blocks one recomputes its activations.
        lengths: tokens of each rank's sequences; the model's are the longest.
        exchanges_always: gradients are exchanged in every micro-step.
        saves_model: rank 0 saves the model in one step of each turn, and in one that is recorded.
    """

    strategy: str = "pytorch_ddp"
    options: tuple[str, ...] = GPU_BOUND
    products: tuple[int, ...] = ()
    host_ms: tuple[float, ...] = ()
    loader_ms: tuple[float, ...] = ()
    gc_objects: tuple[int, ...] = ()
    copy_mib: int = 0
    is_synchronised: bool = False
    is_alone: bool = False
    is_compressed: bool = False
    gathers_late: bool = False
    recomputes_every: int = 0
    lengths: tuple[int, ...] = ()
    exchanges_always: bool = False
    saves_model: bool = False


PLAIN = Side()
SAVING = 1
"""The step of a turn, and of those that are recorded, that saves the model, counted from 0."""

PAIRS: dict[str, tuple[Side, Side]] = {
    "slow_gpu": (Side(products=(0, 12)), PLAIN),
    "slow_gpu_partly": (Side(products=(6, 16)), Side(products=(6, 6))),
    "slow_host": (Side(options=HOST_BOUND, host_ms=(25, 0)), Side(options=HOST_BOUND)),
    "slow_hosts_both": (Side(options=HOST_BOUND, host_ms=(40, 30)), Side(options=HOST_BOUND, host_ms=(30, 30))),
    "slow_host_hidden": (Side(host_ms=(0, 10)), PLAIN),
    "loader": (Side(options=HOST_BOUND, loader_ms=(30, 30)), Side(options=HOST_BOUND)),
    "loader_one_rank": (Side(loader_ms=(0, 60)), PLAIN),
    "garbage_collection": (Side(options=HOST_BOUND, gc_objects=(0, 1_000_000)), Side(options=HOST_BOUND)),
    "synchronised": (Side(is_synchronised=True), PLAIN),
    "synchronised_host_bound": (Side(options=HOST_BOUND, is_synchronised=True), Side(options=HOST_BOUND)),
    "buckets": (Side("simple_ddp"), PLAIN),
    "no_exchange": (Side("simple_ddp"), Side(is_alone=True)),
    "no_exchange_overlapped": (PLAIN, Side(is_alone=True)),
    "compressed": (PLAIN, Side(is_compressed=True)),
    "blocking_copy": (Side(copy_mib=512), PLAIN),
    "two_stragglers": (Side(products=(0, 12), host_ms=(60, 0)), Side(host_ms=(60, 0))),
    "fewer_products": (Side(products=(16, 16)), Side(products=(8, 8))),
    "even_stages": (
        Side("pp_1f1b", (*PIPELINE, "--split", "9,3", "--microbatches", "8")),
        Side("pp_1f1b", (*PIPELINE, "--split", "6,6", "--microbatches", "8")),
    ),
    "gathered_again": (Side("pytorch_zero3"), Side("pytorch_zero2")),
    "more_microbatches": (
        Side("pp_gpipe", (*PIPELINE, "--microbatches", "2")),
        Side("pp_gpipe", (*PIPELINE, "--microbatches", "8")),
    ),
}

FOUR_RANKS: dict[str, tuple[Side, Side]] = {
    "4_slow_gpu": (Side(products=(0, 0, 12)), PLAIN),
    "4_loader_one_rank": (Side(loader_ms=(0, 60)), PLAIN),
    "4_even_stages": (
        Side("pp_1f1b", (*PIPELINE, "--split", "6,2,2,2", "--microbatches", "8")),
        Side("pp_1f1b", (*PIPELINE, "--split", "3,3,3,3", "--microbatches", "8")),
    ),
    "4_prefetch": (Side("zero3", gathers_late=True), Side("zero3")),
    "4_recomputed": (Side(recomputes_every=2), PLAIN),
    "4_longer_sequences": (
        Side(options=LONGER, lengths=(1024, 1024, 1024, 1792)),
        Side(options=LONGER, lengths=(1216, 1216, 1216, 1216)),
    ),
    "4_checkpoint": (Side(saves_model=True), PLAIN),
    "4_every_micro_step": (Side(options=ACCUMULATED, exchanges_always=True), Side(options=ACCUMULATED)),
    "4_compiled": (PLAIN, Side(options=(*GPU_BOUND, "--compile"))),
}
"""Recorded where four ranks are started."""


def main() -> None:
    """Record every pair, or those named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=[*PAIRS, *FOUR_RANKS], help="default: all for so many ranks")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--turns", type=int, default=6, help="of each side without a profiler (default 6)")
    parser.add_argument("--steps", type=int, default=6, help="timed in each turn (default 6)")
    parser.add_argument("--budget-s", type=float, default=480, help="start no pair after this (default 480)")
    given = parser.parse_args()
    started = time.monotonic()
    with joined(choose_device(given.device), timeout_s=120) as world:
        for name in given.only or (FOUR_RANKS if world.size == 4 else PAIRS):
            is_late = torch.tensor(
                [time.monotonic() - started > given.budget_s], device=world.device, dtype=torch.int32
            )
            dist.broadcast(is_late, 0)
            if is_late.item():
                break
            _record(name, given, world)


def _record(name: str, given: argparse.Namespace, world: World) -> None:
    sides = zip(("before", "after"), (PAIRS | FOUR_RANKS)[name], strict=True)
    jobs = {label: _Running(side, given.out / name / label, world) for label, side in sides}
    times: dict[str, list[list[int]]] = {label: [] for label in jobs}
    for turn in range(given.turns):
        for label in jobs if turn % 2 else reversed(jobs):
            times[label].append(jobs[label].timed(given.steps))
    for job in jobs.values():
        job.profile()
    gathered = from_all_ranks(times)
    if world.rank == 0:
        turns = {label: [slowest([own[label][turn] for own in gathered]) for turn in range(given.turns)]
                 for label in jobs}  # fmt: skip
        (given.out / name / "steps.json").write_text(json.dumps(turns, indent=1))
        means = {label: sum(map(sum, each)) / sum(map(len, each)) / 1e6 for label, each in turns.items()}
        print(f"{name}: {means['before']:.2f} ms a step, then {means['after']:.2f}", flush=True)
    del jobs, job
    gc.collect()
    if world.is_cuda:
        torch.cuda.empty_cache()


class _Running:
    """One side, warmed up."""

    def __init__(self, side: Side, out: Path, world: World) -> None:
        small = () if world.is_cuda else SMALL
        self.config = parse(["--strategy", side.strategy, "--out", str(out), *side.options, *small])
        strategy = strategy_named(side.strategy)(Job(self.config, world))
        self.out, self.world, self.faults = out, world, Faults(side, strategy, world, out)
        self.steps = Steps(self.config, world, strategy)
        if side.lengths:
            self._cut_to(side.lengths[world.rank])
        for _ in range(4):
            self.take()

    def _cut_to(self, length: int) -> None:
        """Train on the first so many tokens of each sequence."""
        whole = self.steps.tokens.micro_batches
        self.steps.tokens.micro_batches = lambda *given: [
            Batch(*(part[:, :length] for part in batch)) for batch in whole(*given)
        ]

    def take(self, *, saves: bool = False) -> None:
        """A step with what is wrong."""
        self.faults.before_the_step(saves=saves)
        with self.faults.exchange():
            self.steps.take()

    def timed(self, steps: int) -> list[int]:
        """Un-profiled times of so many steps in ns, behind one that fills the GPU's queue."""
        self.world.synchronize()
        self.take()
        timer = StepTimer(self.world.device)
        timer.mark()
        for step in range(steps):
            self.take(saves=step == SAVING)
            timer.mark()
        self.world.synchronize()
        return timer.step_times_ns()

    def profile(self) -> None:
        """Record some steps."""
        with profiled(self.config.profile, self.out, self.world) as capture:
            for step in range(self.config.profile.steps):
                self.take(saves=step == self.config.profile.first_active + SAVING)
                capture.step()
        (self.out / "model.pt").unlink(missing_ok=True)
        self.world.synchronize()


class Faults:
    """What makes a side slow."""

    def __init__(self, side: Side, strategy: Strategy, world: World, out: Path) -> None:
        self.side, self.strategy, self.world, self.out = side, strategy, world, out
        out.mkdir(parents=True, exist_ok=True)
        size = 8192 if world.is_cuda else 64
        dtype = torch.bfloat16 if world.is_cuda else torch.float32
        self.factor = torch.randn(size, size, device=world.device, dtype=dtype) if side.products else None
        self.heap = [[] for _ in range(self._mine(side.gc_objects))]
        self.pageable = torch.empty(side.copy_mib * 2**18) if side.copy_mib else None
        model = strategy.model
        blocks = [block for block in model.modules() if isinstance(block, Block)]
        for block in blocks[:: side.recomputes_every] if side.recomputes_every else ():
            block.is_checkpointed = True
        if side.exchanges_always:
            strategy.micro_step = nullcontext
        if side.gathers_late:
            strategy.gathers_ahead = False
        if side.is_synchronised:
            for block in blocks:
                block.register_forward_hook(self._wait)
        if side.is_compressed:
            assert isinstance(model, DistributedDataParallel)
            model.register_comm_hook(None, bf16_compress_hook)

    def before_the_step(self, *, saves: bool) -> None:
        """Everything that the side adds to a step of this rank; `saves` if it is one that saves the model."""
        if saves and self.side.saves_model and self.world.rank == 0:
            torch.save(self.strategy.model.state_dict(), self.out / "model.pt")
        if milliseconds := self._mine(self.side.loader_ms):
            with span("data"):
                time.sleep(milliseconds / 1e3)
        if milliseconds := self._mine(self.side.host_ms):
            with span("tokenize"):
                _busy(milliseconds / 1e3)
        if self.heap:
            with span("collect garbage"):
                gc.collect()
        if self.pageable is not None:
            self.pageable.to(self.world.device)
        if count := self._mine(self.side.products):
            assert self.factor is not None
            with span("extra products"):
                for _ in range(count):
                    torch.mm(self.factor, self.factor)

    def exchange(self) -> Any:
        """Around a step: without gradients' exchange when the side asks for it."""
        model = self.strategy.model
        is_alone = self.side.is_alone and isinstance(model, DistributedDataParallel)
        return model.no_sync() if is_alone else nullcontext()

    def _mine(self, by_rank: tuple[Any, ...]) -> Any:
        return by_rank[self.world.rank] if self.world.rank < len(by_rank) else 0

    def _wait(self, *_: object) -> None:
        if self.world.is_cuda:
            torch.cuda.current_stream().synchronize()


def _busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


if __name__ == "__main__":
    main()
