"""The `nsys` command lines that record a run and export the report to SQLite."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REPORT = "report"


def profile_command(out: Path, job: Sequence[str], nsys: str = "nsys") -> list[str]:
    """Record the steps between cudaProfilerStart and Stop of all of the job's processes in one report."""
    return [
        nsys, "profile",
        "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
        "--force-overwrite=true", f"--output={out / REPORT}",
        *job,
    ]  # fmt: skip


def export_command(out: Path, nsys: str = "nsys") -> list[str]:
    """Export to SQLite with blobs, which hold NCCL's message sizes."""
    return [
        nsys, "export",
        "--type=sqlite", "--include-blobs=true", "--force-overwrite=true",
        f"--output={out / REPORT}.sqlite", f"{out / REPORT}.nsys-rep",
    ]  # fmt: skip


def launch_command(arguments: Sequence[str], ranks: int) -> list[str]:
    """The runners with these arguments on that many ranks."""
    module = ["-m", "traceanalyzer.runners", *arguments]
    if ranks == 1:
        return [sys.executable, *module]
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={ranks}",
        *module,
    ]


def record(out: Path, job: Sequence[str], nsys: str = "nsys") -> int:
    """Run the job under nsys and export the report; the first exit status that is not 0.

    Raises:
        UsageError: there is no nsys; the message has both commands.
    """
    commands = [profile_command(out, job, nsys), export_command(out, nsys)]
    if shutil.which(nsys) is None:
        lines = "\n".join(f"  {shlex.join(command)}" for command in commands)
        raise UsageError(f"{nsys} was not found: install Nsight Systems or give --nsys PATH. It would run\n{lines}")
    out.mkdir(parents=True, exist_ok=True)
    for command in commands:
        status = subprocess.run(command, check=False).returncode  # noqa: S603
        if status:
            return status
    return 0
