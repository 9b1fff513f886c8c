"""Figures that integrity doubts carry the mark wherever they are shown."""

from dataclasses import replace

import pytest

from tests.builders import rank_trace
from tests.report.pages import Page
from traceanalyzer.analyses import ANALYSES, run
from traceanalyzer.report import words
from traceanalyzer.report.contents import build
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


def test_a_clean_capture_carries_no_mark():
    clean = report_of(*(rank_trace(OPS, rank=rank, world_size=1) for rank in range(2)))
    assert words.care_sentences(clean) == []
    assert as_json(clean)["doubted"] == {}
    assert "read with care" not in page(clean)


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
