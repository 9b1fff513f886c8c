"""The house itself: no file or function that nobody can read at once, and none that nobody needs."""

import ast
import importlib.util
import re
from collections import Counter
from functools import cache
from pathlib import Path

import traceanalyzer

PACKAGE = Path(traceanalyzer.__file__).parent
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "analyses" / "names.py"]  # made, not read


@cache
def trees():
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def test_files_and_functions_are_short():
    assert {path.name: lines for path in FILES if (lines := path.read_text(encoding="utf-8").count("\n")) > 300} == {}
    functions = [
        (path, node) for path, tree in trees().items() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    ]
    long = {f"{path.name}: {node.name}": node.end_lineno - node.lineno + 1 for path, node in functions}
    assert len(long) > 1_000
    assert {name: lines for name, lines in long.items() if lines > 50} == {}


def test_every_module_is_named_by_another_one():
    """By an import, or as a text in a registry of names."""
    named = Counter()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                named.update([*node.module.split("."), *(one.name for one in node.names)])
            elif isinstance(node, ast.Import):
                named.update(part for one in node.names for part in one.name.split("."))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
                named.update(re.findall(r"\w+", node.value))
    assert [path.stem for path in FILES if path.stem not in ("__init__", "__main__") and not named[path.stem]] == []


def test_every_function_and_class_is_named_outside_its_own_definition():
    """In the package, or in its templates; what Python or click call by its name is left out."""
    named = Counter()
    templates = PACKAGE.parent / "templates"
    for path in [*FILES, *templates.rglob("*.html"), PACKAGE.parent / "hatch_build.py"]:
        named.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    defined = [
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("__")
        and not is_called_for(node)
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
    """By click, for its decorator; by `pickle`, for its name."""
    texts = [ast.unparse(one) for one in node.decorator_list]
    return any(".command" in text for text in texts) or node.name in ("find_class", "persistent_load")
