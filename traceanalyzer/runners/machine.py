"""What the job ran on, as far as it matters for its speed: GPUs, versions and links; never host names."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from typing import Any

import torch


def gpu() -> dict[str, Any] | None:
    """Model and number of the GPUs of this host."""
    if not torch.cuda.is_available():
        return None
    return {"name": torch.cuda.get_device_name(), "count": torch.cuda.device_count()}


def versions() -> dict[str, str | None]:
    """Versions of what decides which kernels run."""
    has_gpu = torch.cuda.is_available()
    driver = _nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader", "--id=0")
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_gpu else None,
        "driver": driver.strip() if driver else None,
        "python": platform.python_version(),
    }


def topology() -> str | None:
    """`nvidia-smi topo -m` without its terminal colours."""
    matrix = _nvidia_smi("topo", "-m")
    return re.sub(r"\x1b\[[0-9;]*m", "", matrix) if matrix else None


def hosts() -> list[str] | None:
    """Which host each rank runs on, by number, as torchrun deals out ranks; `None` on one host, or without it."""
    sizes = [os.environ.get(name, "") for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")]
    world, local = (int(size) if size.isdigit() else 0 for size in sizes)
    return [f"node {rank // local}" for rank in range(world)] if 0 < local < world else None


def _nvidia_smi(*arguments: str) -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
