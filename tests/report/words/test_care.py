"""Figures that integrity doubts carry the mark wherever they are shown."""

from dataclasses import replace

import pytest

from tests import once
from tests.asked import ASKED
from tests.builders import rank_trace
from tests.report.pages import Page
from traceanalyzer.analyses import ANALYSES, run
from traceanalyzer.findings import Finding, find
from traceanalyzer.model import Skipped
from traceanalyzer.report import Report, words
from traceanalyzer.report.build import build
from traceanalyzer.report.writers.html import page
from traceanalyzer.report.writers.tables import as_json
from traceanalyzer.scale import Summary

OPS = [("compute", 1_000, 2_000, 0), ("copy", 2_000, 9_000, 1_100), ("compute", 50_000, 60_000, 49_000)]


def report_of(*traces, names=ANALYSES):
    return build(Summary(run(traces, names), (), (), {}), "job")


def cut(rank):
    trace = rank_trace(OPS, rank=rank)
    return replace(trace, meta=replace(trace.meta, is_truncated=True))


@pytest.fixture(scope="module")
def doubted():
    return report_of(cut(0), rank_trace(OPS, rank=1))


def test_tables_tiles_and_json_say_the_same(doubted):
    why = words.doubted(doubted.results)["headline"]
    assert why.startswith("Rank 0: The file is cut off")
    assert as_json(doubted)["doubted"]["headline"] == why
    marks = [attributes["title"] for tag, attributes in Page(page(doubted)).elements
             if tag == "abbr" and attributes.get("class") == "doubt"]  # fmt: skip
    assert marks.count(why) >= 4, "step time, compute, exposed communication and idle are of the headline"


@pytest.mark.parametrize("name", ["ddp", "pp"])
def test_operations_queued_before_the_capture_leave_a_sample_clean(name):
    results = once.results(name, ["integrity", "ranks"])
    assert "operations_without_launch" in set(results["integrity"].table["check"])
    assert words.doubted(results) == {}
    assert words.care_sentences(Report(name, results)) == []


def test_a_clean_capture_carries_no_mark():
    clean = report_of(*(rank_trace(OPS, rank=rank, world_size=1) for rank in range(2)))
    assert words.care_sentences(clean) == []
    assert as_json(clean)["doubted"] == {}
    assert "read with care" not in page(clean)


def test_findings_say_so_in_their_caveat():
    finding = Finding("low", "title", caveat="It may be less.", sources=("headline", "idle"), rule="rule")
    other = replace(finding, sources=("mfu",), caveat=None)
    marked = words.with_caveats([finding, other], {"idle": ("Clocks disagree.",)})
    assert [one.caveat for one in marked] == ["It may be less. Read with care: Clocks disagree.", None]


def test_a_reason_that_several_results_have_is_said_once():
    doubts = {"idle": ("Clocks disagree.",), "headline": ("Clocks disagree.", "The file is cut off.")}
    assert words.doubt_of(("idle", "headline"), doubts) == "Clocks disagree. The file is cut off."


def test_findings_name_what_they_come_from(doubted):
    found = find(doubted.results)
    assert found
    assert all(set(finding.sources) <= set(doubted.results) and finding.sources for finding in found)


def test_a_check_speaks_once_however_many_ranks_it_concerns():
    report = report_of(*(cut(rank) for rank in range(3)), names=ASKED)
    (said,) = [text for text in words.care_sentences(report) if "cut off" in text]
    assert said.startswith("Rank 0: ")
    assert said.endswith("The same is found on 2 other ranks.")


def test_notes_that_all_ranks_share_are_said_once():
    noted = [rank_trace(OPS, rank=rank, world_size=1) for rank in range(3)]
    texts = ["Same.", "Same.", "Other."]
    traces = [replace(one, meta=replace(one.meta, notes=(text,))) for one, text in zip(noted, texts, strict=True)]
    assert words.care_sentences(report_of(*traces, names=ASKED)) == ["Ranks 0 and 1: Same.", "Rank 2: Other."]
    assert words.care_sentences(report_of(*traces[:2], names=ASKED)) == ["Same."]


def test_a_file_that_is_cut_off_marks_all_that_is_computed_from_events():
    trace = rank_trace([("compute", 0, 10, 1), ("comm", 5, 20, 2)], steps=[(0, 30)])
    marked = set(words.doubted(run([replace(trace, meta=replace(trace.meta, is_truncated=True))])))
    assert {
        "kernels",
        "operators",
        "categories",
        "copies",
        "mfu",
        "streams",
        "modules",
        "headline",
        "stragglers",
    } <= marked
    assert not {"ranks", "integrity"} & marked
    assert "kernels" not in words.doubted(run([trace], ["kernels", "integrity", "ranks"]))


def test_files_skipped_for_one_reason_are_said_together():
    items = [
        Skipped("rank 3", "asked for"),
        *(Skipped(f"/t/plain{n}.json", "no trace") for n in range(12)),
        Skipped("/t/x.json", "cut"),
    ]
    assert words.skipped(items, most=2) == [
        "rank 3: asked for", "12 files in /t (plain0.json, plain1.json, 10 more): no trace", "/t/x.json: cut",
    ]  # fmt: skip
    assert words.skipped(items[1:4]) == ["3 files in /t (plain0.json, plain1.json, plain2.json): no trace"]
    assert words.skipped([Skipped("a", "x"), Skipped("b", "x")]) == ["a, b: x"]


def test_files_skipped_in_many_folders_are_said_together():
    items = [Skipped(f"/t/d{n // 2}/f{n}", "no trace") for n in range(6)]
    assert words.skipped(items, most=2) == ["6 files in 3 folders (/t/d0/f0, /t/d0/f1, 4 more): no trace"]
    assert len(words.skipped(items, most=3)) == len(words.skipped(items)) == 3
