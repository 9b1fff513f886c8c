"""One vocabulary: what idling is caused by is known to one file."""

import ast
import re
from functools import cache
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


@cache
def trees():
    """What each file of the package says, by its place there."""
    files = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}


def test_the_names_of_idle_causes_are_written_in_one_file():
    written = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in NAMES
    }
    assert written == {"meaning/vocabulary.py", "analyses/names.py"}  # the second is made from the first
    for path in assets.templates().rglob("*.*"):
        assert not [name for name in NAMES if re.search(rf"\b{re.escape(name)}\b", path.read_text(encoding="utf-8"))], (
            path
        )


KEYS = {cause.key for cause in vocabulary.IDLE_CAUSES}
OF_CHANGES = {
    "analyses/replay/change.py",
    "analyses/replay/lengths.py",
    "cli/what_if.py",
}  # what may be changed has names of its own


def held(node):
    """The texts that a dict, tuple, list or set is written with."""
    elements = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
    return {one.value for one in elements if isinstance(one, ast.Constant)}


def is_of_a_cause(node):
    """`row["cause"] == "…"`, whichever way round."""
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    return any(
        isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Constant) and side.slice.value == "cause"
        for side in sides
    ) and any(isinstance(side, ast.Constant) and side.value in KEYS for side in sides)


def test_no_other_file_writes_the_keys_of_causes():
    files = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if len(held(node) & KEYS) > 1 or is_of_a_cause(node)
    }
    assert files - OF_CHANGES == set()


def test_kinds_and_parts_are_those_that_are_computed():
    assert tuple(kind.key for kind in vocabulary.KINDS if kind.key in kinds.KINDS) == tuple(
        kind.key for kind in vocabulary.KINDS
    )
    assert tuple(part.column for part in vocabulary.PARTS) == PARTS


def test_each_thing_is_told_by_its_own_key_and_label():
    for things in (vocabulary.KINDS, vocabulary.IDLE_CAUSES, vocabulary.ON_PATH):
        assert len({one.key for one in things}) == len({one.label for one in things}) == len(things)
    assert {*KEYS, *kinds.KINDS} <= {one.key for one in vocabulary.ON_PATH}


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
