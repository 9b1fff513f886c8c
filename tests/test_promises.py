"""Promises to users name tests that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/contributing/reliability.md", "docs/reference/formats.md"])
def test_every_promise_names_a_test(page):
    tests = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`(?:(tests/\S+\.py)::)?(test_\w+)`", (ROOT / page).read_text())
    assert named
    for file, name in named:
        places = [tests[ROOT / file]] if file else tests.values()
        assert any(f"def {name}(" in text for text in places), name
