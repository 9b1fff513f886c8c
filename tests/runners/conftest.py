"""Runs command lines of the runners on a few CPU ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runners need torch")

ROOT = Path(__file__).parents[2]
# One thread a rank: more than there are cores slows every rank down.
PYTHONPATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PYTHONPATH}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


@pytest.fixture(scope="session")
def runs_of(tmp_path_factory):
    """What each command line measured, all run in one process group of so many ranks."""

    def run(lines: list[str], ranks: int) -> list[dict]:
        folder = tmp_path_factory.mktemp("several_runs")
        (folder / "lines.json").write_text(json.dumps([line.split() for line in lines]))
        script = [str(ROOT / "tests/runners/several_runs.py"), "lines.json", "results.json"]
        launcher = [*TORCHRUN, f"--nproc_per_node={ranks}"] if ranks > 1 else [sys.executable]
        done = subprocess.run(
            [*launcher, *script],
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        return json.loads((folder / "results.json").read_text())

    return run


@pytest.fixture(scope="session")
def measured(request, runs_of):
    """What one command line measured: those that files name in `RUNS`, by number of ranks, are run at once."""
    made = {}

    def of(line: str, ranks: int) -> dict:
        if ranks not in made:
            own = [item.module for item in request.session.items if item.path.parent == Path(__file__).parent]
            files = {module.__name__: getattr(module, "RUNS", {}) for module in own}
            lines = [one for name in sorted(files) for one in files[name].get(ranks, ())]
            made[ranks] = dict(zip(lines, runs_of(lines, ranks), strict=True))
        return made[ranks][line]

    return of


@pytest.fixture
def runner(tmp_path):
    """`python -m traceanalyzer.runners` with the given arguments, in a folder of its own."""

    def run(arguments: str, ranks: int = 1) -> subprocess.CompletedProcess:
        launcher = [*TORCHRUN, f"--nproc_per_node={ranks}"] if ranks > 1 else [sys.executable]
        command = [*launcher, "-m", "traceanalyzer.runners", *arguments.split()]
        return subprocess.run(
            command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
        )

    return run
