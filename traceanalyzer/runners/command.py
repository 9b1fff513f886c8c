"""What the runners' command does: one rank of a run, or the launcher of several."""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from typing import TYPE_CHECKING

import torch

from traceanalyzer.errors import TraceAnalyzerError, UsageError
from traceanalyzer.runners import nsys
from traceanalyzer.runners.memory_snapshot import snapshots
from traceanalyzer.runners.options import RunConfig, parse
from traceanalyzer.runners.run_json import RunRecord, recording_failure
from traceanalyzer.runners.shutdown import unwinding_on_signals
from traceanalyzer.runners.strategies import strategy_named
from traceanalyzer.runners.train import planned, train
from traceanalyzer.runners.world import choose_device, is_under_torchrun, joined, log_nccl, require_devices, world_size

if TYPE_CHECKING:
    from collections.abc import Sequence


class Exit(IntEnum):
    """How the command ends, besides 0 and an exception's 1."""

    USAGE = 2
    OUT_OF_MEMORY = 3


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    try:
        config = parse(arguments)
        if config.profile.profiler == "nsys" and config.device == "cpu":
            raise UsageError("--profiler nsys records GPUs: use --profiler torch with --device cpu")
        if config.profile.profiler == "nsys" and not (config.under_nsys or "NSYS_PROFILING_SESSION_ID" in os.environ):
            return _record_with_nsys(config, arguments)
        if config.ranks and config.ranks > 1 and not is_under_torchrun():
            # Reported here in one line: below torchrun it would stand amid thirty of its own, with its exit status.
            require_devices(config.device, config.ranks)
            strategy_named(config.strategy).check(config, config.ranks)
            # This process becomes torchrun, so that whoever ends it ends the ranks.
            command = nsys.launch_command(arguments, config.ranks)
            os.execv(command[0], command)  # noqa: S606
        return _run(config)
    except TraceAnalyzerError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return Exit.USAGE


def _run(config: RunConfig) -> int:
    """This rank's part of the run, and its run.json."""
    device = choose_device(config.device)
    strategy_named(config.strategy).check(config, world_size())
    if device.type == "cuda":
        log_nccl(config.out)
    rank = int(os.environ.get("RANK", "0"))
    try:
        with (
            recording_failure(config.out, rank, device, lambda: planned(config, world_size())),
            unwinding_on_signals(),
            joined(device, config.timeout_s) as world,
        ):
            with snapshots(config.out, world, is_wanted=config.memory_snapshot):
                record = train(config, world)
            if rank == 0:
                record.write(config.out)
                _report(record, config)
    except torch.OutOfMemoryError:
        return Exit.OUT_OF_MEMORY
    return 0


def _record_with_nsys(config: RunConfig, arguments: Sequence[str]) -> int:
    if is_under_torchrun():
        job = nsys.launch_command(arguments, world_size())
        raise UsageError(
            "--profiler nsys must be started by nsys, around torchrun. Leave torchrun out and say "
            f"--ranks {world_size()}, or run\n  {' '.join(nsys.profile_command(config.out, job, config.nsys))}"
        )
    strategy_named(config.strategy).check(config, config.ranks or 1)
    job = nsys.launch_command([*arguments, "--under-nsys"], config.ranks or 1)
    return nsys.record(config.out, job, config.nsys)


def _report(record: RunRecord, config: RunConfig) -> None:
    """One line of what was measured and where it is."""
    parts = [str(record.strategy), f"{record.world_size} ranks"]
    if record.unprofiled and record.unprofiled.mean:
        parts.append(f"{record.unprofiled.mean / 1e6:.1f} ms a step")
    if record.tokens_per_s is not None:
        parts.append(f"{record.tokens_per_s:,.0f} tokens/s")
    if record.losses:
        parts.append(f"loss {record.losses[0]:.4f} → {record.losses[-1]:.4f}")
    print(", ".join(parts), "→", config.out, flush=True)  # noqa: T201
