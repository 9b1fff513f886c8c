"""Tables as files: golden JSON, absent values, names that a spreadsheet would run."""

import csv
import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from tests import once
from tests.builders import document, host, kernel, write
from traceanalyzer.cli import run as command
from traceanalyzer.report import Report
from traceanalyzer.report.writers import tables

GOLDEN = Path(__file__).parents[2] / "golden"

STABLE = ("breakdown", "steps", "nccl")


@pytest.mark.parametrize("name", ["ddp", "pp", "moe"])
def test_json_of_a_sample(name, request):
    found = tables.as_json(Report(name, once.results(name, ["ranks", *STABLE])))
    text = json.dumps(found["results"], indent=1, sort_keys=True) + "\n"
    golden = GOLDEN / f"{name}.json"
    if request.config.getoption("--update-golden"):
        golden.write_text(text)
    assert json.loads(text) == json.loads(golden.read_text())


def test_absent_is_null_and_empty_never_zero(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    assert command(["in", "--output", "out", "--quiet"]) == 0
    (row,) = json.loads((tmp_path / "out" / "summary.json").read_text())["results"]["breakdown"]
    assert row["overlap_pct"] is None
    assert ",0,0,," in (tmp_path / "out" / "summary.csv").read_text()


def test_the_summary_says_which_ranks_figures_are_doubtful(tmp_path):
    results = once.results("ddp", ["ranks", "breakdown", "integrity"])
    found = pd.DataFrame(
        [
            (1, "cut", "high", 1, None, "Its file is cut off.", "events"),
            (0, "x", "info", 1, None, "Know it.", "events"),
        ],
        columns=[*results["integrity"].columns],
    )
    results = {**results, "integrity": type(results["integrity"])(found)}
    tables.write_csv(Report("x", results), tmp_path)
    assert pd.read_csv(tmp_path / "summary.csv")["caveat"].fillna("").tolist() == ["", "Its file is cut off."]


def test_names_cannot_become_formulas(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["=HYPERLINK(1)", "\n=1+1", "@SUM(1)", " -1", "＝1+1"]
    events = [
        event
        for place, name in enumerate(names)
        for event in (
            kernel(10 * place, 5, name=name, correlation=place + 1),
            host(10 * place, 1, name=name),
            host(10 * place, 1, name=name, cat="cuda_runtime", correlation=place + 1),
        )
    ]
    write(tmp_path / "in" / "rank0.json", document(events, rank=0, world_size=1))
    assert command(["in", "--output", "out", "--quiet", "--format", "csv"]) == 0
    written = (tmp_path / "out" / "tables" / "kernels.csv").read_text()
    assert all(name.strip() in written for name in names)
    for path in (tmp_path / "out" / "tables").iterdir():
        cells = [cell for row in csv.reader(io.StringIO(path.read_text(), newline="")) for cell in row]
        assert not [cell for cell in cells if re.match(r"\s*[=+@-]", cell) and not re.fullmatch(r"-[\d.e+-]+", cell)], (
            path
        )


def test_the_longest_tables_of_many_ranks_lie_beside_the_json(tmp_path, monkeypatch):
    from traceanalyzer.diff.sources import SourceOptions, read_side

    monkeypatch.setattr(tables, "MOST_JSON_ROWS", 20)
    monkeypatch.setattr(tables, "_STAYS", 5)
    report = Report("ddp", once.results("ddp", ["ranks", "breakdown", "steps", "kernels", "idle"]))
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "summary.json").write_text(json.dumps(tables.as_json(report)))
    written = tables.write_json(report, tmp_path)
    text = (tmp_path / "summary.json").read_text()
    content = json.loads(text)
    assert all(
        json.dumps(row, ensure_ascii=False) in text.replace(",\n", "\n").split("\n")
        for row in content["results"]["idle"]
    )
    assert content["format_version"] == 4
    assert set(content["files"]) == {"kernels"} == {path.stem for path in written[1:]}
    assert "kernels" not in content["results"]
    assert content["files"]["kernels"] == {"path": "tables/kernels.parquet", "rows": len(report.results["kernels"])}
    own, whole = (
        read_side(str(folder / "summary.json"), SourceOptions()).captures[0].tables
        for folder in (tmp_path, tmp_path / "whole")
    )
    assert own.keys() == whole.keys()
    assert own["kernels"]["total_ns"].tolist() == whole["kernels"]["total_ns"].tolist()
    assert json.loads((tmp_path / "whole" / "summary.json").read_text())["format_version"] == 3


def test_the_summary_has_levels_of_memory_by_how_long_they_last():
    levels = pd.DataFrame({"time_ns": [0, 40, 90, 100], "allocated_bytes": [10, 30, 20, 5]})
    assert [tables._level(levels, part) for part in (0.4, 0.5, 0.95)] == [10, 20, 30]
