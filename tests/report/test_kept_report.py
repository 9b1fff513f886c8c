"""A run that was reported before is shown from what was kept, and its report is the same."""

import re
import shutil
from pathlib import Path

import pytest

from traceanalyzer import scale
from traceanalyzer.cli import run
from traceanalyzer.discovery import discover
from traceanalyzer.loading import LoadOptions, kept_ranks, store
from traceanalyzer.report.contents import KEPT_ENDING, keep_run, kept_place, kept_run
from traceanalyzer.selection import Selection

CAPTURES = Path(__file__).parents[1] / "captures"

_OF_THE_RUN = re.compile(rb"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\+00:00)?( UTC)?")


@pytest.fixture(autouse=True)
def _kept_here(monkeypatch, tmp_path):
    monkeypatch.setattr(kept_ranks, "WORTH_BYTES", 0)
    monkeypatch.setattr(store, "_UNSETTLED_NS", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def job(tmp_path):
    """One of its ranks."""
    (tmp_path / "job").mkdir()
    shutil.copy(CAPTURES / "moe" / "rank0.json.gz", tmp_path / "job")
    return tmp_path / "job"


@pytest.fixture
def summaries(monkeypatch):
    """Grows by one with every summary that is made of ranks."""
    made = []
    summarise = scale.summarise
    monkeypatch.setattr(scale, "summarise", lambda *given, **options: made.append(1) or summarise(*given, **options))
    return made


def reported(job, *more):
    """What the command writes, by file, without the time of writing."""
    target = job.parent / "report"
    assert run([str(job), "--output", str(target), "--force", "--jobs", "1", "--quiet", *more]) == 0
    files = (path for path in sorted(target.rglob("*")) if path.is_file())
    return {str(path.relative_to(target)): _OF_THE_RUN.sub(b"", path.read_bytes()) for path in files}


def entries(job):
    return sorted(job.parent.joinpath("cache").rglob(f"*{KEPT_ENDING}"))


def test_the_same_report_from_what_is_kept(job, summaries):
    first = reported(job)
    assert len(entries(job)) == len(summaries) == 1
    assert reported(job) == first
    assert len(summaries) == 1, "what the page draws of the graph is kept: the ranks are not joined again"


def test_what_is_damaged_is_made_again(job, tmp_path):
    found = discover(job)
    run_, options = found.runs[-1], LoadOptions(cache=tmp_path / "kept")
    place = kept_place(found, run_, options, {})
    summary = scale.summarise(found, run_, options, names=("ranks", "steps"), jobs=1)
    harms = {
        "tables.columns": lambda held: held[:-200],
        "facts.json": lambda held: held.replace(b",0,0]", b",0,1]"),  # one bit, and still what facts look like
    }
    for damaged, harm in harms.items():
        keep_run(place, place, summary, ())
        back, findings = kept_run(place)
        assert (list(back.results), back.claims, findings) == (list(summary.results), summary.claims, ())
        file = place / "0" / damaged
        file.write_bytes(harm(held := file.read_bytes()))
        assert file.read_bytes() != held
        assert kept_run(place) is None
        assert not place.exists()


def test_another_question_is_another_entry(job, tmp_path):
    def place(**asked):
        found = discover(job)
        return kept_place(found, found.runs[-1], LoadOptions(cache=tmp_path, **asked), {"idle_short_ns": 5})

    first = place()
    assert place() == first
    others = [place(selection=Selection(None, "last")), place(ranks=frozenset({0}))]
    (job / "rank0.json.gz").touch()
    others.append(place())
    assert len({first, *others}) == 4
    (job / "rank1.json.gz").write_text("cut")
    assert place() not in (first, *others)
