"""What is measured beside this project, each tool in an environment of its own, and the code that each runs."""

import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

PEERS = {"HolisticTraceAnalysis": "HolisticTraceAnalysis==0.5.0", "traceinsight": "traceinsight==0.6.0"}
"""What to install. Both are imported as `hta`: in one environment the later would overwrite the earlier."""

SIMDJSON = "pysimdjson"

INSTALLED = {**PEERS, SIMDJSON: "pysimdjson>=7"}

_ANALYSES = """
import sys
from importlib.metadata import distributions
from hta.trace_analysis import TraceAnalysis
here = {{each.metadata["Name"].lower() for each in distributions()}} & {{"holistictraceanalysis", "traceinsight"}}
assert here == {{{name!r}.lower()}}, here
made = TraceAnalysis(trace_dir=sys.argv[1])
made.get_temporal_breakdown(visualize=False)
made.get_comm_comp_overlap(visualize=False)
made.get_gpu_kernel_breakdown(visualize=False)
made.get_idle_time_breakdown(ranks=None, visualize=False)
"""
"""The four of its analyses of which this project's report has a counterpart."""

_PARSED = "import simdjson, sys; simdjson.Parser().load(sys.argv[1])"

LOADED = "import json, sys; json.load(open(sys.argv[1]))"

OURS = """
import resource, sys
from pathlib import Path
from traceanalyzer.__main__ import main
place = sys.argv.pop(1)
sys.argv.append("--quiet")
try:
    main()
finally:
    own = resource.getrusage(resource.RUSAGE_SELF)
    Path(place).write_text(f"{own.ru_utime + own.ru_stime} {own.ru_maxrss}")
"""
"""The command as it is installed; says what this process alone took, without those that it starts for the ranks."""

_SECONDS = 900


def code_of(name: str) -> str:
    """What a tool runs; its argument is the folder of a job, of the parser a file."""
    return _PARSED if name == SIMDJSON else _ANALYSES.format(name=name)


def environments(folder: Path, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Python of each tool's environment, and why others have none.

    Args:
        folder: where environments are made, or lie since the last run.
        given: interpreters of environments that exist.
    """
    found, missing = dict(given), {}
    for name, package in INSTALLED.items():
        if name in found:
            continue
        python = folder / name / "bin" / "python"
        why = None if _has(python, package) else _installed(python, package)
        if why is None:
            found[name] = str(python)
        else:
            missing[name] = why
            print(f"without {name}: {why}", flush=True)
    return found, missing


def _has(python: Path, package: str) -> bool:
    distribution = package.replace(">=", "==").partition("==")[0]
    code = f"from importlib.metadata import version; version({distribution!r})"
    return python.exists() and subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def _installed(python: Path, package: str) -> str | None:
    """Make the environment; returns why it could not be made."""
    venv.create(python.parent.parent, with_pip=True, clear=True)
    command = [python, "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "15", package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"pip install {package} took more than {_SECONDS} s"
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return f"pip install {package}: {(lines or ['failed'])[-1][:160]}" if done.returncode else None


def ours(own: Path, folder: Path, report: Path, *, jobs: int | None) -> list[str]:
    """The whole command of this project: page, CSV and JSON."""
    asked = [] if jobs is None else ["--jobs", str(jobs)]
    # Safe path: the package is the one that the environment names, not what lies in the working folder.
    return [sys.executable, "-P", "-c", OURS, str(own), str(folder), "--output", str(report), *asked]
