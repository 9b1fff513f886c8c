"""The notebook of the documentation runs as it is, and every cell's last line shows something short or rich."""

import ast
import json
from pathlib import Path

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tour.ipynb"

MOST_CHARACTERS = 4_000
"""A cell prints no screens of text."""


def cells():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(code, names):
    """Run a cell; the value of its last line, which a notebook would show."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names) if last else None


def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    values = [shown(code, names) for code in cells()]
    assert len(values) >= 12
    for value in values:
        # plotly prints the whole figure, which a notebook draws instead
        if value is not None and "plotly" not in type(value).__module__:
            assert len(repr(value)) < MOST_CHARACTERS, type(value)
    found, answered = values[5], values[7]
    assert "stage 1" in repr(found)
    assert "stage 1" in found._repr_html_()
    assert answered.to_dict()["after_ms"] < answered.to_dict()["before_ms"]
    assert list(names["made"].figures())[:1] == ["headline"]
    assert (tmp_path / "reports/pipeline/summary.html").stat().st_size > 100_000
    assert (tmp_path / "reports/pipeline/pp.pftrace.gz").stat().st_size > 10_000
    assert "pytorch_ddp takes" in repr(names["comparison"])
    assert "<table>" in names["comparison"]._repr_html_()
