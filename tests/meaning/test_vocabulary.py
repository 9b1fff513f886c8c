"""One vocabulary: what idling is caused by is known to one file."""

import ast
import re
from pathlib import Path

from traceanalyzer import kinds
from traceanalyzer.analyses.time.breakdown import PARTS
from traceanalyzer.meaning import vocabulary
from traceanalyzer.report import assets

PACKAGE = Path(vocabulary.__file__).parents[1]
NAMES = {
    name
    for cause in (vocabulary.SYNC, vocabulary.DATA, vocabulary.BETWEEN_KERNELS)
    for name in (cause.column, cause.part.kind)
} | {vocabulary.BETWEEN_KERNELS.key}


def test_the_names_of_idle_causes_are_written_in_one_file():
    written = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in NAMES
    }
    assert written == {"meaning/vocabulary.py", "analyses/names.py"}  # the second is made from the first
    for path in assets.templates().rglob("*.*"):
        assert not [name for name in NAMES if re.search(rf"\b{re.escape(name)}\b", path.read_text(encoding="utf-8"))], (
            path
        )


def test_kinds_and_parts_are_those_that_are_computed():
    assert tuple(kind.key for kind in vocabulary.KINDS if kind.key in kinds.KINDS) == tuple(
        kind.key for kind in vocabulary.KINDS
    )
    assert tuple(part.column for part in vocabulary.PARTS) == PARTS


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
