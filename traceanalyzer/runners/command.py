"""What the runners' command does: one rank of a run, the launcher of several, or Nsight Systems around them."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import torch

from traceanalyzer.errors import TraceAnalyzerError, UsageError
from traceanalyzer.runners.options import RunConfig, parse
from traceanalyzer.runners.recording import snapshots
from traceanalyzer.runners.run_json import RunRecord, recording_failure
from traceanalyzer.runners.strategies import strategy_named
from traceanalyzer.runners.train import planned, train
from traceanalyzer.runners.world import (
    choose_device,
    is_under_torchrun,
    joined,
    log_nccl,
    require_devices,
    unwinding_on_signals,
    world_size,
)


class Exit(IntEnum):
    """How the command ends, besides 0 and an exception's 1."""

    USAGE = 2
    OUT_OF_MEMORY = 3


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    try:
        config = parse(arguments)
        strategy = strategy_named(config.strategy)
        is_launched = is_under_torchrun()
        ranks = world_size() if is_launched else config.ranks or 1
        if config.profile.profiler == "nsys":
            if config.device == "cpu":
                raise UsageError("--profiler nsys records GPUs: use --profiler torch with --device cpu")
            if not (config.under_nsys or "NSYS_PROFILING_SESSION_ID" in os.environ):
                commands = nsys_commands(config.out, launch_command([*arguments, "--under-nsys"], ranks))
                if is_launched:
                    raise UsageError(
                        "--profiler nsys must be started by nsys, around torchrun. Leave torchrun out and say --ranks "
                        f"{ranks}, or run\n  {shlex.join(commands[0])}"
                    )
                strategy.check(config, ranks)
                return record_with_nsys(config.out, commands)
        if ranks > 1 and not is_launched:
            # Reported here in one line: below torchrun it would stand amid thirty of its own, with its exit status.
            require_devices(config.device, ranks)
            strategy.check(config, ranks)
            # This process becomes torchrun, so that whoever ends it ends the ranks.
            command = launch_command(arguments, ranks)
            os.execv(command[0], command)  # noqa: S606
        strategy.check(config, ranks)
        return _run(config)
    except TraceAnalyzerError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return Exit.USAGE


def _run(config: RunConfig) -> int:
    """This rank's part of the run, and its run.json."""
    device = choose_device(config.device)
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


def launch_command(arguments: Sequence[str], ranks: int) -> list[str]:
    """The runners with these arguments on that many ranks."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    return [sys.executable, *torchrun, "-m", "traceanalyzer.runners", *arguments]


def nsys_commands(out: Path, job: Sequence[str]) -> list[list[str]]:
    """Record the steps between cudaProfilerStart and Stop of all processes, then export with NCCL's message sizes."""
    report = out / "report"
    return [
        [
            "nsys", "profile",
            "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none",
            "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
            "--force-overwrite=true", f"--output={report}",
            *job,
        ],
        [
            "nsys", "export",
            "--type=sqlite", "--include-blobs=true", "--force-overwrite=true",
            f"--output={report}.sqlite", f"{report}.nsys-rep",
        ],
    ]  # fmt: skip


def record_with_nsys(out: Path, commands: Sequence[Sequence[str]]) -> int:
    """Run the commands; the first exit status that is not 0.

    Raises:
        UsageError: there is no nsys; the message has the commands.
    """
    if shutil.which("nsys") is None:
        lines = "\n".join(f"  {shlex.join(command)}" for command in commands)
        raise UsageError(f"nsys was not found: install Nsight Systems and put it on the PATH. It would run\n{lines}")
    out.mkdir(parents=True, exist_ok=True)
    statuses = (subprocess.run(command, check=False).returncode for command in commands)  # noqa: S603
    return next(filter(None, statuses), 0)


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
