"""Every gate that the program or its documents give as an example is of a figure that there is."""

import re
from pathlib import Path

import pytest

import traceanalyzer
from traceanalyzer.errors import UsageError
from traceanalyzer.gate import check_names, parse

PACKAGE = Path(traceanalyzer.__file__).parent
DOCUMENTS = PACKAGE.parent / "docs"

_QUOTED = re.compile(r"'([^'\n]+)'|`([^`\n]+)`")
_ASKED = re.compile(r"--fail-on '([^']+)'")


def gates_of(text):
    """What is quoted in a text and reads as a gate."""
    for match in _QUOTED.finditer(text):
        try:
            yield parse(match[1] or match[2])
        except UsageError:
            continue


def examples():
    """Of the command's help and messages, of the page about gates, and what any page gives to the command."""
    texts = [path.read_text() for room in ("cli", "gate") for path in (PACKAGE / room).glob("*.py")]
    texts += [(DOCUMENTS / "compare.md").read_text()]
    texts += [f"'{gate}'" for page in DOCUMENTS.rglob("*.md") for gate in _ASKED.findall(page.read_text())]
    return {gate.text: gate for text in texts for gate in gates_of(text)}


EXAMPLES = examples()


@pytest.mark.parametrize("text", sorted(EXAMPLES))
def test_an_example_names_a_figure(text):
    gate = EXAMPLES[text]
    check_names([gate], of_comparison=gate.op is None)


def test_examples_are_found():
    told = {"exposed_comm_pct > 5", "idle_pct > 10 @ any rank", "step_ms +3%", "overlap_pct -2pp"}
    assert told <= EXAMPLES.keys()
    (gone,) = gates_of("such as 'hidden_comm_pct -2pp'")
    with pytest.raises(UsageError, match="hidden_comm_pct"):
        check_names([gone], of_comparison=True)
