"""The house itself: no file or function that nobody needs."""

import ast
import importlib.util
import re
from collections import Counter
from functools import cache
from pathlib import Path

import traceanalyzer
from traceanalyzer.findings.conclude import every_kind
from traceanalyzer.meaning import vocabulary
from traceanalyzer.readers import FORMATS
from traceanalyzer.report import assets

PACKAGE = Path(traceanalyzer.__file__).parent
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "analyses" / "names.py"]  # made, not read

FOUND = [*FORMATS, *(kind.__name__ for kind in every_kind())]
"""Modules and functions that their registry finds by their names."""


@cache
def nodes(*kinds):
    """All that is written of these kinds, each with its file."""
    if kinds:
        return [(path, node) for path, node in nodes() if isinstance(node, kinds)]
    return [(path, node) for path in FILES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def test_every_module_is_named_by_another_one():
    """By an import, as a text in a registry of names, or found by one."""
    named = Counter(FOUND)
    for _, node in nodes(ast.ImportFrom):
        named.update([*node.module.split("."), *(one.name for one in node.names)])
    for _, node in nodes(ast.Import):
        named.update(part for one in node.names for part in one.name.split("."))
    for _, node in nodes(ast.Constant):
        if isinstance(node.value, str) and " " not in node.value:
            named.update(re.findall(r"\w+", node.value))
    assert [path.stem for path in FILES if path.stem not in ("__init__", "__main__") and not named[path.stem]] == []


def test_every_function_and_class_is_named_outside_its_own_definition():
    """In the package, in its tables of words, or in its templates; what Python or click call by its name is left out."""
    named = Counter(FOUND)
    templates = PACKAGE.parent / "templates"
    for path in [*FILES, *PACKAGE.rglob("*.toml"), *templates.rglob("*.html")]:
        named.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    defined = [
        node.name
        for _, node in nodes(ast.FunctionDef, ast.ClassDef)
        if not node.name.startswith("__") and not is_called_for(node)
    ]
    assert sorted({name for name in defined if named[name] == 1}) == []


def test_what_the_benchmark_of_stages_times_exists():
    path = PACKAGE.parent / "benchmarks" / "stages.py"
    spec = importlib.util.spec_from_file_location("stages", path)
    stages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stages)
    named = {**stages.STAGES, **stages.PIECES}
    absent = {f"{module}.{name}" for module, names in named.items() for name in names
              if not hasattr(importlib.import_module(module), name)}  # fmt: skip
    assert absent == set()


def is_called_for(node):
    """By click, for its decorator; by `pickle` and `io`, for its name."""
    texts = [ast.unparse(one) for one in node.decorator_list]
    return any(".command" in text for text in texts) or node.name in ("find_class", "persistent_load", "readinto")


NAMES = {
    name
    for cause in (vocabulary.SYNC, vocabulary.DATA, vocabulary.BETWEEN_KERNELS)
    for name in (cause.column, cause.part.kind)
} | {vocabulary.BETWEEN_KERNELS.key}


def test_the_names_of_idle_causes_are_written_in_one_file():
    assert written(NAMES) == {"meaning/vocabulary.py"}  # `analyses/names.py` is made from it
    for path in assets.templates().rglob("*.*"):
        assert not [name for name in NAMES if re.search(rf"\b{re.escape(name)}\b", path.read_text(encoding="utf-8"))], (
            path
        )


def written(texts):
    return {place_of(path) for path, node in nodes(ast.Constant) if node.value in texts}


def place_of(path):
    return Path(path).relative_to(PACKAGE).as_posix()


KEYS = {cause.key for cause in vocabulary.IDLE_CAUSES}
OF_CHANGES = {
    "analyses/replay/changes.py",
    "analyses/replay/lengths.py",
    "cli/what_if.py",
    "findings/savings.py",
}  # what may be changed has names of its own


def held(node):
    """The texts that a dict, tuple, list or set is written with."""
    elements = node.keys if isinstance(node, ast.Dict) else node.elts
    return {one.value for one in elements if isinstance(one, ast.Constant)}


def is_of_a_cause(node):
    """`row["cause"] == "…"`, whichever way round."""
    sides = [node.left, *node.comparators]
    return any(
        isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Constant) and side.slice.value == "cause"
        for side in sides
    ) and any(isinstance(side, ast.Constant) and side.value in KEYS for side in sides)


def test_no_other_file_writes_the_keys_of_causes():
    many = {path for path, node in nodes(ast.Dict, ast.Tuple, ast.List, ast.Set) if len(held(node) & KEYS) > 1}
    one = {path for path, node in nodes(ast.Compare) if is_of_a_cause(node)}
    assert {place_of(path) for path in many | one} - OF_CHANGES == set()
