"""The package's types, made from its registries: `python -m tests.typed_names` writes them where a column was renamed."""

import re
import subprocess
import sys
from pathlib import Path

import traceanalyzer
from traceanalyzer.analyses import ANALYSES, thresholds_of
from traceanalyzer.analyses.engine import kinds_of_thresholds

STUB = Path(traceanalyzer.__file__).with_suffix(".pyi")
ROOM = STUB.parent / "analyses"

_HEAD = """# Made from the registry of analyses by `python -m tests.typed_names`.
from typing import Literal, TypeAlias

from traceanalyzer.analyses import Result as Result
from traceanalyzer.analyses import Results as _Results
from traceanalyzer.errors import InputError as InputError
from traceanalyzer.errors import NotATraceError as NotATraceError
from traceanalyzer.errors import TraceAnalyzerError as TraceAnalyzerError
from traceanalyzer.errors import UsageError as UsageError
from traceanalyzer.export.hta import to_hta as to_hta
from traceanalyzer.export.perfetto import export as export
from traceanalyzer.findings import Finding as Finding
from traceanalyzer.findings import Findings as Findings
from traceanalyzer.functions import what_if as what_if
from traceanalyzer.loading import load as load
from traceanalyzer.model import RankTrace as RankTrace
from traceanalyzer.model import TraceSet as TraceSet
from traceanalyzer.report.comparison import compare as compare
from traceanalyzer.report.writers.notebook import NotebookReport as _NotebookReport
from traceanalyzer.samples import sample as sample
"""

_RESULTS = """# Which Result each analysis gives. Made by `python -m tests.typed_names`.

from typing import Literal, Protocol, overload

import pandas as pd

from traceanalyzer.analyses.base import Result
"""

_ITEMS = """

class Results(dict[str, Result]):
"""

_ANY_ITEM = """
    @overload
    def __getitem__(self, name: str) -> Result: ...
    def __or__(self, others: dict[str, Result]) -> Results: ...  # type: ignore[override]  # each keeps its class
"""

_ANY_GET = """
    @overload
    def get(self, name: str) -> Result | None: ...
"""

_TABLES = """

class Tables(Protocol):
    def __call__(self, name: str) -> pd.DataFrame | None: ...
"""

KINDS = kinds_of_thresholds(ANALYSES)

GIVES = {name: analysis.result for name, analysis in ANALYSES.items()}


def stub() -> str:
    imports = sorted(
        {f"from {one.__module__} import {one.__name__} as _{one.__name__}" for one in GIVES.values()}
        | _imports_of_types()
    )
    functions = [f"def {name}({_parameters(name)}) -> _{one.__name__}: ..." for name, one in GIVES.items()]
    of_all = [
        f"def analyse(traces: TraceSet, *names: _ResultName, {_listed(thresholds_of(ANALYSES))}) -> _Results: ...",
        *(
            f"def {name}(traces: TraceSet, *, {_listed(thresholds_of(ANALYSES))}) -> {gives}: ..."
            for name, gives in (("find", "Findings"), ("report", "_NotebookReport"))
        ),
    ]
    names = f"_ResultName: TypeAlias = Literal[{', '.join(map(repr, GIVES))}]"
    return formatted("\n".join([_HEAD, *imports, names, "__version__: str", *of_all, *functions]), STUB)


def results() -> str:
    """Which Result each analysis gives: those of `run`, and their tables by name."""
    imports = sorted({f"from {one.__module__} import {one.__name__}" for one in GIVES.values()})
    items = [
        f"    @overload\n    def __getitem__(self, name: Literal[{name!r}]) -> {one.__name__}: ..."
        for name, one in GIVES.items()
    ]
    gets = [
        f"    @overload\n    def get(self, name: Literal[{name!r}]) -> {one.__name__} | None: ..."
        for name, one in GIVES.items()
    ]
    gets[0] = gets[0].replace("overload", "overload  # type: ignore[override]  # of each its class", 1)
    own = [*imports, _ITEMS, *items, _ANY_ITEM, *gets, _ANY_GET, _TABLES]
    return formatted("\n".join([_RESULTS, *own]), ROOM / "results.pyi")


def formatted(text: str, place: Path) -> str:
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(place), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _parameters(name: str) -> str:
    thresholds = _listed(thresholds_of([name]))
    return f"traces: TraceSet, *, {thresholds}" if thresholds else "traces: TraceSet"


def _listed(thresholds) -> str:
    return ", ".join(f"{key}: {_type(key)} = {value!r}" for key, value in thresholds.items())


def _type(name) -> str:
    """A threshold's type; of what a run's files say the stub's own name for it."""
    kind = KINDS[name]
    return kind.__name__ if kind in (int, float) else re.sub(r"(\w+\.)+(\w+)", r"_\2", str(kind))


def _imports_of_types() -> set[str]:
    named = re.findall(r"([\w.]+)\.(\w+)", " ".join(str(kind) for kind in KINDS.values() if kind not in (int, float)))
    return {f"from {module} import {name} as _{name}" for module, name in named}


MADE = {STUB: stub, ROOM / "results.pyi": results}

if __name__ == "__main__":
    for place, make in MADE.items():
        place.write_text(make(), encoding="utf-8")
