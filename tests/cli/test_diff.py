"""Comparisons, gates and baselines, as a user types them."""

import contextlib
import csv
import io
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.builders import NAMES, document, host, kernel, write
from tests.cli import job, summary, typed
from tests.samples import SAMPLES
from traceanalyzer.cli import run

JSON = ("--format", "json")
"""Nothing is said of pages in tests that ask for this alone."""

DDP, FSDP, STRAGGLER = (str(SAMPLES / name) for name in ("ddp", "fsdp_full", "ddp_straggler"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def steps_of_a_kernel(length=5):
    """Three steps, the last open: a rank whose mean step is known."""
    events = [
        event
        for at in (0, 100, 200)
        for event in (
            host(at, 99, name=f"ProfilerStep#{at // 100}", cat="user_annotation"),
            host(at + 1, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=at + 1),
            kernel(at + 5, length, correlation=at + 1),
            host(at + 2, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=at + 2),
            kernel(at + 5 + length, 20, correlation=at + 2, name=NAMES["comm"]),
        )
    ]
    return document(events, rank=0, world_size=1)


def failing_on(*gates):
    return [word for gate in gates for word in ("--fail-on", gate)]


GATES = ("step_ms +3% @ any rank", "overlap_pct? -90pp")
"""Of which the first fails."""


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder of `ddp` against `fsdp_full` in every form, what was printed, and the exit code; made once."""
    place, printed = tmp_path_factory.mktemp("compared"), io.StringIO()
    with contextlib.chdir(place), contextlib.redirect_stdout(printed):
        code = run(["diff", DDP, FSDP, *failing_on(*GATES)])
    return place / "reports" / "diff_ddp_fsdp_full", printed.getvalue(), code


def test_writes_every_form(compared):
    folder, printed, _ = compared
    assert {path.name for path in folder.iterdir()} == {
        "summary.html", "summary.csv", "summary.json", "summary.md", "tables", ".traceanalyzer.json", "gate.xml",
        "gate.md",
    }  # fmt: skip
    found = summary(folder)
    assert (found["base"], found["runs"], found["per"], found["is_fair"]) == (
        "ddp",
        ["ddp", "fsdp_full"],
        "optimizer step",
        True,
    )
    nccl = {row["collective"]: row for row in found["tables"]["fsdp_full"]["nccl"]}
    assert {name: row["status"] for name, row in nccl.items()} == {
        "all_reduce": "REMOVED", "all_gather": "NEW", "reduce_scatter": "NEW",
    }  # fmt: skip
    assert nccl["all_reduce"]["base_calls"] == 14
    assert nccl["all_reduce"]["base_size_bytes"] == nccl["reduce_scatter"]["other_size_bytes"] == 650_864_640
    assert "all-gather is NEW: 26 calls, 651 MB" in " ".join(printed.split()).replace("\u202f", " ")
    with (folder / "tables" / "nccl__fsdp_full.csv").open() as file:
        assert [row["status"] for row in csv.DictReader(file)] == [row["status"] for row in nccl.values()]
    with (folder / "summary.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "step_ns"]
    assert float(rows[1]["change"]) == pytest.approx(float(rows[1]["value"]) - float(rows[0]["value"]))


def test_a_run_with_itself_differs_in_nothing_and_passes_every_gate(capsys):
    write(Path("ddp", "rank0.json"), steps_of_a_kernel())
    gates = ["step_ms +0%", "exposed_comm_pct +0pp @ any rank", "kernels.calls +0", "kernels.total_ns +0% @ all ranks"]
    assert typed("diff ddp ddp -o out", *JSON, *failing_on(*gates)) == 0
    assert "No figure differs." in capsys.readouterr().out
    found = summary("out")
    assert {row["status"] for table in found["tables"]["ddp (2)"].values() for row in table} == {"SAME"}
    assert {gate["status"] for gate in found["gates"]} == {"passed"}


@pytest.mark.thorough
def test_order_only_swaps_signs(compared):
    assert run(["diff", FSDP, DDP, "--output", "two", "--format", "json", "-q"]) == 0
    one, two = summary(compared[0]), summary("two")
    changes = [
        {
            row["metric"]: (row["change"], row["change_pct_points"])
            for row in found["metrics"]
            if row["run"] != found["base"]
        }
        for found in (one, two)
    ]
    for metric, values in changes[0].items():
        assert [None if value is None else -value for value in values] == list(changes[1][metric]), metric
    swapped = {"NEW": "REMOVED", "REMOVED": "NEW", "CHANGED": "CHANGED", "SAME": "SAME"}
    for name, rows in one["tables"]["fsdp_full"].items():
        back = two["tables"]["ddp"][name]
        assert [swapped[row["status"]] for row in rows] == [row["status"] for row in back], name
        changes = [name for name in rows[0] if name.startswith("change_") and not name.endswith("_pct")]
        assert changes, name
        for change in changes:
            there, here = ([row[change] for row in table] for table in (rows, back))
            assert [None if value is None else -value for value in here] == pytest.approx(there), (name, change)


def test_a_failed_gate_is_code_1_with_its_rows_in_three_forms(compared):
    folder, printed, code = compared
    assert code == 1
    assert "FAILED fsdp_full: step_ms changed by +" in printed
    assert "rank 0, base step " in printed
    suite = ET.parse(folder / "gate.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert "base step" in suite.find("testcase/failure").text
    for name in ("gate.md", "summary.md"):
        assert f"❌ failed | `{GATES[0]}`" in (folder / name).read_text()


@pytest.mark.parametrize(
    ("gates", "code"), [(("exposed_comm_pct > 5", "idle_pct > 10 @ any rank"), 1), (("exposed_comm_pct > 99",), 0)]
)
def test_gates_of_the_main_command(gates, code, capsys):
    write(Path("in", "rank0.json"), steps_of_a_kernel())
    assert typed("in -o out", *JSON, *failing_on(*gates)) == code
    failed = len(gates) if code else 0
    assert capsys.readouterr().out.count("FAILED") == failed
    assert int(ET.parse("out/gate.xml").getroot().get("failures")) == failed


def test_a_figure_that_is_not_there_fails_the_gate(capsys):
    job("in")
    assert typed("in --fail-on 'overlap_pct < 50'", *JSON) == 5
    assert "CANNOT BE JUDGED in: overlap_pct is not available" in capsys.readouterr().out
    assert typed("in --fail-on 'overlap_pct? < 50'", *JSON) == 0


def test_baselines(capsys):
    for name, length in (("ddp", 5), ("longer", 45)):
        write(Path(name, "rank0.json"), steps_of_a_kernel(length))
    assert typed("baseline save main ddp") == 0
    assert "Baseline: .traceanalyzer/baselines/main.json" in capsys.readouterr().out
    assert typed("baseline save main ddp") == 0
    assert "Baseline replaced: .traceanalyzer/baselines/main.json" in capsys.readouterr().out
    assert typed("baseline save later ddp -q") == 0
    assert typed("baseline list --json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["name"], first["of"], first["captures"], first["ranks"]) == ("main", "ddp", 1, 1)
    assert first["saved"] <= second["saved"]
    assert first["step_ns"] == second["step_ns"] > 0
    assert typed("baseline trend --metric step_ns") == 0
    assert "later" in capsys.readouterr().out
    rows = json.loads(Path("reports/trend/trend.json").read_text())["rows"]
    assert [(row["baseline"], row["change_pct"]) for row in rows] == [("main", None), ("later", 0.0)]
    assert Path("reports/trend/trend.html").read_text().count('%" height="8"></rect>') == 2
    assert typed("baseline trend --metric stp_ns") == 2
    Path(".traceanalyzer/baselines/broken.json").write_text("[")
    assert typed("baseline list") == 0
    assert "cannot be read" in capsys.readouterr().out
    assert typed("baseline trend main") == 2
    assert typed("diff baseline:main ddp --fail-on 'step_ms +0%' -o out", *JSON) == 0
    assert typed("diff baseline:main longer --fail-on 'compute_ns +3%' -o out", *JSON) == 1
    assert typed("baseline remove main") == 0
    assert typed("diff baseline:main ddp") == 2
    assert "no such baseline" in capsys.readouterr().err


def test_unequal_work_is_refused_and_marked_when_forced(capsys):
    for name, tokens in (("small", 1000), ("large", 4000)):
        facts = {"dtype": str(tokens), "batch": {"tokens_per_step": tokens}}
        Path(job(name), "run.json").write_text(json.dumps(facts))
    assert typed("diff small large -o out") == 2
    error = capsys.readouterr().err
    assert "dtype differs (1000 | 4000)" in error
    assert "--force" in error
    assert not Path("out").exists()
    assert typed("diff small large -o out --force") == 0
    assert "NOT COMPARABLE" in capsys.readouterr().out
    assert "Not comparable; made with --force." in Path("out", "summary.html").read_text()
    assert all("NOT COMPARABLE" in Path("out", f"summary.{name}").read_text() for name in ("md", "csv"))
    assert summary("out")["is_forced"]


def test_the_report_shows_run_json():
    info = Path(job("in"), "run.json")
    info.write_text('{"strategy": "ddp", "batch": {"global_batch": 16}}')
    assert typed("in -o out -q", *JSON) == 0
    found = summary("out")
    assert found["run_info"]["strategy"] == "ddp"
    assert found["run_info"]["batch"]["global_batch"] == 16
    assert typed("diff out/summary.json in -o both -q", *JSON) == 0
    assert summary("both")["facts"][0]["state"] == "not known"
    info.write_text("[")
    assert typed("in -o out -q", *JSON) == 0
    assert "not a run.json" in summary("out")["notes"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diff", DDP], "Missing argument"), (["diff", DDP, ""], "named by nothing"), (["diff", DDP, "x="], "named by nothing"),
        (["diff", DDP, FSDP, "-o", ""], "Invalid value for '--output'"), (["diff", "nowhere", DDP], "nowhere: no such folder"),
        (["diff", DDP, FSDP, "--fail-on", "step_ms 3%"], "METRIC OP NUMBER"),
        (["diff", DDP, FSDP, "--fail-on", "nonsense > 3"], "nonsense"),
        (["baseline", "save", "../x", DDP], "plain file name"), ([DDP, "--fail-on", "step_ms +3%"], "needs a base run"),
        (["baseline", "remove", "x"], "no such baseline"), (["diff", DDP, FSDP, "--steps", "x"], "--steps"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line_and_code_2(capsys, arguments, message):
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_the_documented_gates_and_the_example_for_a_build_server_work(capsys):
    """The commands of the workflow, with samples in place of what the job records."""
    from traceanalyzer.gate import parse

    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    assert len([parse(gate) for gate in re.findall(r"--fail-on '([^']+)'", page)]) >= 5
    script = re.search(r"analyze-traces (diff baseline:main new=.*?)\n- name", page, re.DOTALL)[1]
    for number in (1, 2, 3):
        shutil.copytree(DDP, f"profile/run{number}")
    assert typed("baseline save main profile/run1+profile/run2+profile/run3") == 0
    assert typed(script.replace("\\\n", " ")) == 0  # the same captures
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines() if " new: " in line] == ["PASSED", "PASSED"]
    assert Path("reports", "performance", "summary.md").exists()
