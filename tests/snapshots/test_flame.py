"""The peak by calls: boxes as wide as what they hold."""

import pytest

from tests.snapshots.builders import KEEP, STATE, History, write
from traceanalyzer.report.snapshots import WIDTH, flame, page
from traceanalyzer.snapshots import examine_snapshot, read_snapshot


@pytest.fixture
def one(tmp_path):
    history = History()
    history.alloc(3 << 20, KEEP)
    history.alloc(1 << 20, STATE)
    return examine_snapshot(read_snapshot(write(tmp_path / "rank0_snapshot.pickle", history.snapshot())))


def test_boxes_are_as_wide_as_what_they_hold(one):
    boxes = {box["name"]: box for box in flame(one)["boxes"]}
    assert boxes["all that is in use at the peak"]["width"] == WIDTH
    assert boxes["train.py:20 in <module>"]["width"] == pytest.approx(0.75 * WIDTH)
    assert boxes["adam.py:178 in _init_group"]["width"] == pytest.approx(0.25 * WIDTH)
    assert (boxes["model.py:7 in forward"]["is_own"], boxes["functional.py:9 in linear"]["is_own"]) == (True, False)


def test_a_call_stands_above_the_one_that_made_it_and_within_it(one):
    picture = flame(one)
    boxes = {box["name"]: box for box in picture["boxes"]}
    outer, inner = boxes["model.py:7 in forward"], boxes["functional.py:9 in linear"]
    assert inner["y"] == outer["y"] - picture["row"]
    assert outer["x"] <= inner["x"]
    assert inner["x"] + inner["width"] <= outer["x"] + outer["width"]


def test_names_of_frames_are_text(tmp_path):
    history = History()
    history.alloc(1 << 20, (("<script>alert(1)</script>.py", 1, "<b>"),))
    one = examine_snapshot(read_snapshot(write(tmp_path / "rank0_snapshot.pickle", history.snapshot())))
    assert "<script>alert" not in page([one], "run")


def test_nothing_in_use_is_no_picture(tmp_path):
    one = examine_snapshot(read_snapshot(write(tmp_path / "rank0_snapshot.pickle", History().snapshot())))
    assert flame(one) is None
