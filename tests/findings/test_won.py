"""What is won is said in one way, and as a bound where the capture makes it one; no title is edited as text."""

import ast
from pathlib import Path

import pytest

import traceanalyzer
from traceanalyzer.findings.basis import Title, Won, without_gains
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.registry import within_limits

_PACKAGE = Path(traceanalyzer.__file__).parent
MS = 1_000_000


@pytest.mark.parametrize(("rule", "most"), [("warm_up", "at most "), ("shared_gpu", "")])
def test_what_the_capture_cannot_tell_makes_every_gain_a_bound_in_its_words_too(rule, most):
    spoiling = Finding("high", "Cold.", rule=rule, is_about_capture=True)
    uneven = Finding("low", Title("Evened, it is ", Won(MS, is_bound=False), "."), rule="uneven_steps",
                     gain_ns=MS, gain_is_bound=False)  # fmt: skip
    _, said = within_limits([spoiling, uneven], {})
    assert said.title == f"Evened, it is {most}1 ms shorter."
    assert type(said.title) is str
    assert said.gain_words == f"{most}1\u202fms"


def test_an_ideal_is_a_bound_whatever_the_replay_is():
    assert Finding("low", "", gain_ns=MS, gain_is_bound=False, is_of_ideal=True).gain_words == "at most 1\u202fms"


def test_a_title_is_said_without_its_gains():
    title = Title("It takes 2 ms. Mended, a step is ", Won(MS, is_bound=False), ", or so. The others wait.")
    assert without_gains(title) == "It takes 2 ms. The others wait."
    assert without_gains("It takes 2 ms.") == "It takes 2 ms."


def _calls(path):
    return (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))


def _edits_a_title(call):
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"replace", "sub", "subn", "removesuffix"}:
        return False
    on = [call.func.value, *call.args]
    return any("title" in (getattr(each, "attr", ""), getattr(each, "id", "")) for each in on)


@pytest.mark.parametrize("source", sorted((_PACKAGE / "findings").rglob("*.py")), ids=lambda path: path.stem)
def test_no_rule_edits_a_title_or_says_a_bound_itself(source):
    assert not [ast.unparse(call) for call in _calls(source) if _edits_a_title(call)]
    assert '"at most " if' not in source.read_text("utf-8")
    assert "'at most ' if" not in source.read_text("utf-8")
