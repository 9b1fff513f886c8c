"""Damage control: what fails becomes a note with its name, the rest of the report is written, the exit code says so."""

import json

import pytest

from tests.builders import NAMES, document, host, kernel, write
from traceanalyzer.analyses import ANALYSES
from traceanalyzer.cli import run
from traceanalyzer.errors import PartFailedWarning

QUIETLY = pytest.mark.filterwarnings("ignore::traceanalyzer.errors.PartFailedWarning")


def broken(*_args, **_named):
    raise IndexError("of 3 rows")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for rank in (0, 1):
        events = [
            *(host(at, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=at) for at in (10, 20, 30)),
            kernel(15, 8, correlation=10), kernel(25, 9 - rank, name=NAMES["comm"], stream=17, correlation=20),
            kernel(60, 5, correlation=30),
        ]  # fmt: skip
        write(tmp_path / "job" / f"rank{rank}.json", document(events, rank=rank))


def break_analysis(monkeypatch, name, half):
    from dataclasses import replace
    from inspect import Signature, signature
    from types import MappingProxyType

    from traceanalyzer.analyses import engine

    original = getattr(ANALYSES[name], half)

    def failing(*args, **named):
        return broken(*args, **named)

    result = ANALYSES[name].result if half == "across" else Signature.empty
    failing.__signature__ = signature(original).replace(return_annotation=result)
    part = "made_by" if half == "across" else half
    table = MappingProxyType({**engine.ANALYSES, name: replace(ANALYSES[name], **{part: failing})})
    monkeypatch.setattr(engine, "ANALYSES", table)


def written(tmp_path):
    return said(tmp_path), (tmp_path / "out" / "summary.html").read_text()


def said(tmp_path):
    return json.loads((tmp_path / "out" / "summary.json").read_text())


PAGE_AND_JSON = ("--format", "html", "--format", "json")
JSON = ("--format", "json")


@QUIETLY
@pytest.mark.parametrize(
    ("names", "half"),
    [
        (("efficiency", "idle"), "per_rank"), (("calls",), "across"),
        *(pytest.param(*case, marks=pytest.mark.thorough)
          for case in ((("efficiency", "exposed_comm", "idle"), "across"), (("calls",), "per_rank"))),
    ],
)  # fmt: skip
def test_an_analysis_that_fails_is_a_note(tmp_path, monkeypatch, capsys, names, half):
    """Together those of which none needs another: each has its own note."""
    for name in names:
        break_analysis(monkeypatch, name, half)
    assert run(["job", "--output", "out", *PAGE_AND_JSON]) == 3
    found, page = written(tmp_path)
    error = capsys.readouterr().err
    for name in names:
        note = next(note for note in found["notes"] if f"Analysis {name} could not be computed" in note)
        assert "IndexError: of 3 rows" in note
        assert not found["results"].get(name)
        assert f"Partial report: Analysis {name}" in error
    assert found["results"]["headline"]
    assert "could not be computed" in page
    assert "Traceback" not in error


@QUIETLY
def test_what_needs_it_is_left_out_with_it(tmp_path, monkeypatch):
    break_analysis(monkeypatch, "calls", "per_rank")
    assert run(["job", "--output", "out", *JSON]) == 3
    told = said(tmp_path)
    assert told["results"]["nccl"] == []
    note = next(note for note in told["notes"] if "Analysis calls" in note)
    assert "nccl" in note.partition("left out too: ")[2]


@QUIETLY
def test_a_rank_without_its_breakdown_is_left_out(tmp_path, monkeypatch):
    break_analysis(monkeypatch, "breakdown", "per_rank")
    assert run(["job", "--output", "out"]) == 70
    assert not (tmp_path / "out").exists()


@QUIETLY
def test_a_kind_of_finding_that_fails_is_a_note(tmp_path, monkeypatch, capsys):
    from traceanalyzer.findings import conclude

    kinds = (broken_kind, *conclude.every_kind())
    monkeypatch.setattr(conclude, "every_kind", lambda: kinds)
    assert run(["job", "--output", "out", "-v", *PAGE_AND_JSON]) == 3
    found, page = written(tmp_path)
    assert any("Finding broken_kind could not be computed" in note for note in found["notes"])
    assert "Finding broken_kind" in page
    assert "Traceback" in capsys.readouterr().err


def broken_kind(run):  # noqa: ARG001 - a kind takes it
    return broken()


@QUIETLY
def test_parts_of_the_page_that_fail_are_notes(tmp_path, monkeypatch):
    parts = {
        "timeline": "traceanalyzer.report.writers.html.timeline_data",
        "tiles": "traceanalyzer.report.writers.html.tiles",
        "capture": "traceanalyzer.report.words.capture_line",
    }
    for place in parts.values():
        monkeypatch.setattr(place, broken)
    assert run(["job", "--output", "out", "--format", "html"]) == 3
    page = (tmp_path / "out" / "summary.html").read_text()
    assert [part for part in parts if f"The page’s part “{part}” could not be computed" not in page] == []
    assert "Where each rank" in page


@QUIETLY
def test_a_terminal_that_fails_leaves_the_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("traceanalyzer.report.writers.text._show_findings", broken)
    assert run(["job", "--output", "out", "--format", "html"]) == 3
    assert (tmp_path / "out" / "summary.html").exists()
    assert "What the terminal shows could not be computed: IndexError: of 3 rows" in " ".join(
        capsys.readouterr().err.split()
    )


@QUIETLY
def test_a_gate_on_what_failed_does_not_pass(monkeypatch, capsys):
    break_analysis(monkeypatch, "idle", "across")
    gate = ["--fail-on", "idle.host_ns > 1000 s @ any rank"]
    assert run(["job", "--output", "out", *JSON, *gate]) == 5
    assert "CANNOT BE JUDGED" in capsys.readouterr().out


def test_in_tests_a_failure_is_an_error(monkeypatch, capsys):
    break_analysis(monkeypatch, "efficiency", "across")
    assert run(["job", "--output", "out", *JSON]) == 70
    assert PartFailedWarning.__name__ in capsys.readouterr().err


@QUIETLY
def test_the_library_raises(monkeypatch):
    import traceanalyzer as ta

    break_analysis(monkeypatch, "efficiency", "across")
    with pytest.raises(IndexError):
        ta.analyse(ta.load("job"), "efficiency")
