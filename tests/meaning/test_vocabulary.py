"""One vocabulary: each thing has its own key, label and look. That one file alone writes names of causes: `test_house.py`."""

import re

from traceanalyzer import kinds
from traceanalyzer.analyses.breakdown import PARTS
from traceanalyzer.meaning import vocabulary
from traceanalyzer.report import assets


def test_kinds_and_parts_are_those_that_are_computed():
    assert tuple(kind.key for kind in vocabulary.KINDS if kind.key in kinds.KINDS) == tuple(
        kind.key for kind in vocabulary.KINDS
    )
    assert tuple(part.column for part in vocabulary.PARTS) == PARTS


def test_each_thing_is_told_by_its_own_key_and_label():
    for things in (vocabulary.KINDS, vocabulary.IDLE_CAUSES, vocabulary.ON_PATH):
        assert len({one.key for one in things}) == len({one.label for one in things}) == len(things)
    assert {*kinds.KINDS} <= {one.key for one in vocabulary.ON_PATH}


def test_every_part_has_a_look_and_every_pattern_is_drawn():
    for part in (*vocabulary.PARTS, *vocabulary.COMM_PARTS, *vocabulary.IDLE_PARTS):
        assert part.kind in vocabulary.LOOKS
        assert vocabulary.viewer_colour(part.kind)
    page = assets.read("page/patterns.html")
    for look in vocabulary.LOOKS.values():
        assert not look.pattern or f'<pattern id="{look.pattern}"' in page


def test_a_page_has_every_look_as_a_variable():
    style = assets.style()
    used = set(
        re.findall(
            r"var\(--([\w-]+)\)",
            style
            + assets.read("styles/diff.css")
            + assets.read("styles/doctor.css")
            + assets.read("styles/memory.css"),
        )
    )
    assert used - set(re.findall(r"--([\w-]+):", style)) == set()
