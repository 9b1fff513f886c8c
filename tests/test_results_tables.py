"""The studies' tables: what they read of a report is there, and what they compute from it."""

import json
import re
import shutil
import sys

import pandas as pd
import pytest

from tests.samples import RUNNERS
from traceanalyzer.cli import DONE
from traceanalyzer.cli import run as command

sys.path.insert(0, str(RUNNERS.parent / "experiments"))
import results
from measured.forecasts import forecast
from measured.pipelines import by_split
from measured.runs import Run

STEPS = {"C": ("--steps", "3:5")}  # as run.py does
READ = ("--format", "json", "--format", "csv")
SAMPLES = {"A": ("zero3", "pytorch_ddp"), "C": ("zo_offload_sliced",), "D": ("pp_1f1b",)}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Every table that the samples allow, by name."""
    folder = tmp_path_factory.mktemp("studies")
    for set_name, names in {**SAMPLES, "B": ()}.items():
        (folder / "profile" / set_name).mkdir(parents=True)
        for name in names:
            run = shutil.copytree(RUNNERS / name, folder / "profile" / set_name / name)
            target = folder / "reports" / set_name / name
            assert command([str(run), "--output", str(target), *READ, *STEPS.get(set_name, ())]) == DONE
    (folder / "README.md").write_text("before\n<!-- table: a_calls -->\nold\n<!-- end -->\nafter\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["results.py", *(str(folder / part) for part in ("profile", "reports", ""))])
        results.main()
    found = {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}
    return found | {"readme": (folder / "README.md").read_text()}


def test_every_set_has_its_tables(tables):
    assert set(tables) >= {"a_breakdown", "a_calls", "a_collectives", "c_offload", "d_breakdown", "d_pipeline"}


def test_parts_of_a_step_add_up(tables):
    parts = tables["a_breakdown"][["compute %", "exposed comm %", "copies %", "idle %"]]
    assert parts.sum(axis=1).to_list() == pytest.approx([100, 100], abs=0.3)


def test_calls_are_those_of_one_step(tables):
    calls = tables["a_calls"].set_index("run")
    assert calls.loc["zero3", ["all_gather", "reduce_scatter"]].to_list() == [9, 5]
    assert calls.loc["zero3", "expected"] == "9 all-gathers"
    assert calls.loc["pytorch_ddp", "all_reduce"] == 8


def test_a_slice_is_what_the_run_says_it_uploads(tables):
    (row,) = tables["c_offload"].to_dict("records")
    assert (row["memory"], row["profiler"]) == ("pinned", "torch")
    assert row["uploaded MB a GPU and step"] == pytest.approx(row["run.json: uploaded MB"], rel=0.01)


def test_the_readme_gets_the_table_and_keeps_the_rest(tables):
    lines = tables["readme"].splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in lines
    assert lines[2].startswith("| run | blocks |")


def pipeline_run(folder, name, split, stages_ms, step_ms):
    run, tables = folder / "profile" / name, folder / "reports" / name / "tables"
    run.mkdir(parents=True)
    tables.mkdir(parents=True)
    facts = {"parallel": {"split": split}, "step_time_ns": {"unprofiled": {"mean": step_ms * 1e6}}}
    (run / "run.json").write_text(json.dumps(facts))
    rows = {"stage": range(len(split)), "steps": 2, "compute_ns": [int(ms * 2e6) for ms in stages_ms]}
    pd.DataFrame(rows).to_csv(tables / "pipeline.csv", index=False)
    return Run(run, folder / "reports" / name)


def test_an_even_split_predicts_another(tmp_path):
    # A block takes 10 ms, the head 25.
    even = pipeline_run(tmp_path, "pp_2_stages", [3, 3], [30, 55], 100)
    other = pipeline_run(tmp_path, "pp_2_stages_by_time", [4, 2], [40, 50], 90)
    first, second = by_split([even, other])
    assert (first["predicted ms by stage"], first["head in blocks"]) == ("", 2.5)
    assert (second["predicted ms by stage"], second["measured"]) == ("40 45", "40 50")
    assert (second["longest off by %"], second["against even %"]) == (-10.0, -10.0)


def test_a_forecast_stands_beside_the_run_that_makes_the_change(tmp_path):
    before = pipeline_run(tmp_path, "simple_ddp", [3, 3], [30, 30], 40)
    after = pipeline_run(tmp_path, "pytorch_ddp", [3, 3], [30, 30], 36)
    pd.DataFrame(
        {"after": ["pytorch_ddp", "single"], "asked": "comm free", "before_ns": 44e6, "after_ns": 38e6}
    ).to_csv(before.report / "tables/forecasts.csv", index=False)
    pd.DataFrame({"step_mean_ns": [39e6, 41e6]}).to_csv(after.report / "tables/headline.csv", index=False)
    (row,) = forecast([before, after])
    assert row["change"] == "simple_ddp → pytorch_ddp"
    assert [row[name] for name in ("recorded ms", "forecast ms", "happened ms", "miss %")] == [44, 38, 40, -5]
    assert [row["un-profiled before ms"], row["after ms"]] == [40, 36]


def test_kept_runs_make_the_printed_tables_again(tmp_path):
    printed = RUNNERS.parent / "docs/results"
    text = (printed / "README.md").read_text()
    tables = [f"{name}.csv" for name in re.findall(r"<!-- table: (\w+) -->", text)]
    again = tmp_path / "again"
    shutil.copytree(printed / "runs", again / "runs")
    pattern = r"(<!-- table: \w+ -->\n).*?(<!-- end -->)"
    (again / "README.md").write_text(re.sub(pattern, r"\1gone\n\2", text, flags=re.DOTALL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["results.py", "--kept", str(again)])
        results.main()
    assert sorted(path.name for path in again.glob("*.csv")) == sorted(tables)
    for name in (*tables, "README.md"):
        assert (again / name).read_text() == (printed / name).read_text(), name
