"""The package's types: every analysis is a function with its own Result, so that a misspelt one is a type error."""

import subprocess
import sys
from pathlib import Path

from mypy import api

import traceanalyzer
from traceanalyzer.analyses import ANALYSES, thresholds_of

STUB = Path(traceanalyzer.__file__).with_suffix(".pyi")

_HEAD = """# Made from the registry of analyses by `pytest tests/test_stub.py --update-golden`.
from typing import Any

from traceanalyzer.analyses import Result as Result
from traceanalyzer.errors import InputError as InputError
from traceanalyzer.errors import NotATraceError as NotATraceError
from traceanalyzer.errors import TraceAnalyzerError as TraceAnalyzerError
from traceanalyzer.errors import UsageError as UsageError
from traceanalyzer.export.hta import to_hta as to_hta
from traceanalyzer.export.of_traces import export as export
from traceanalyzer.findings import Finding as Finding
from traceanalyzer.findings import Findings as Findings
from traceanalyzer.functions import analyse as analyse
from traceanalyzer.functions import what_if as what_if
from traceanalyzer.loading import load as load
from traceanalyzer.model import RankTrace as RankTrace
from traceanalyzer.model import TraceSet as TraceSet
from traceanalyzer.report.comparison.notebook import compare as compare
from traceanalyzer.report.writers.notebook import report as report
from traceanalyzer.samples import sample as sample
"""

_FIND = "def find(traces: TraceSet, **thresholds: Any) -> Findings: ..."


def stub() -> str:
    gives = {name: analysis.result for name, analysis in ANALYSES.items()}
    imports = sorted({f"from {one.__module__} import {one.__name__} as _{one.__name__}" for one in gives.values()})
    functions = [f"def {name}({_parameters(name)}) -> _{one.__name__}: ..." for name, one in gives.items()]
    text = "\n".join([_HEAD, *imports, "__version__: str", _FIND, *functions])
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _parameters(name: str) -> str:
    thresholds = [f"{key}: {_type(value)} = {value!r}" for key, value in thresholds_of([name]).items()]
    return ", ".join(["traces: TraceSet", *(["*", *thresholds] if thresholds else [])])


def _type(default) -> str:
    return "Any" if default is None else type(default).__name__


def test_the_stub_is_that_of_the_registry(request):
    if request.config.getoption("--update-golden"):
        STUB.write_text(stub(), encoding="utf-8")
    assert STUB.read_text(encoding="utf-8") == stub(), "run pytest tests/test_stub.py --update-golden"


def test_the_stub_has_all_that_the_package_has():
    words = set(STUB.read_text(encoding="utf-8").replace("(", " ").replace(":", " ").split())
    assert {name for name in traceanalyzer.__all__ + list(ANALYSES) if name not in words} == set()


def test_what_a_user_misspells_is_a_type_error(tmp_path):
    user = tmp_path / "user.py"
    user.write_text(
        "import traceanalyzer as ta\n"
        "traces = ta.load('x')\n"
        "ta.brekdown(traces)\n"
        "ta.gaps(traces, idle_shrt_ns=3)\n"
        "reveal_type(ta.breakdown(traces))\n"
        "ta.gaps(traces, idle_short_ns=3)\n"
        "ta.report(traces).figurs()\n"
        "ta.compare(traces, traces).save('x')\n"
        "traces[0].gpu_ops, len(traces), ta.kernels(traces).where(rank=0).head()\n"
    )
    said, _, _ = api.run(["--strict", "--follow-imports=silent", "--ignore-missing-imports", str(user)])
    lines = [line for line in said.splitlines() if ": error:" in line or "Revealed type" in line]
    told = {int(line.split(":")[1]): line for line in lines}
    assert sorted(told) == [3, 4, 5, 7], said
    assert "Breakdown" in told[5]
