"""What pages, their scripts and their styles call by name on both sides: elements, classes, keys of JSON."""

import json
import re
from pathlib import Path

import pytest

from tests import once
from tests.report.timeline.test_timeline_data import unpacked
from traceanalyzer.meaning import vocabulary
from traceanalyzer.report import assets
from traceanalyzer.report.charts import step_chart
from traceanalyzer.report.timeline import timeline_data


def text(pattern: str, folder: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob(pattern)))


PAGES = text("*.html", assets.templates())
SCRIPTS = text("*.js", assets.templates() / "scripts")
TYPES = text("*.d.ts", assets.templates() / "scripts")
STYLES = "\n".join(assets.read(f"styles/{path.name}") for path in (assets.templates() / "styles").iterdir())
PYTHON = text("*.py", Path(assets.__file__).parent)
MAKERS = PAGES + SCRIPTS + PYTHON
PACKAGE = text("*.py", Path(assets.__file__).parents[1])

LOOKED_FOR = re.findall(r"""(?:querySelector(?:All)?\(|one\([^,]+,)\s*["`]([^"`]+)["`]""", SCRIPTS)
IDS = {*re.findall(r'(?:getElementById|byId)\("([^"]+)"\)', SCRIPTS), *re.findall(r"#([\w-]+)", " ".join(LOOKED_FOR))}


@pytest.mark.parametrize("name", sorted(IDS))
def test_an_element_that_scripts_look_for_is_on_a_page(name):
    assert re.search(rf'\bid(?:=|: ){{0,1}} *"{name}"', MAKERS)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\.([a-z][\w-]*)", " ".join(LOOKED_FOR)))))
def test_a_class_that_scripts_look_for_is_given(name):
    assert re.search(rf'class(?:Name)?(?:=|: ) ?["`][^"`]*(?<![\w-]){name}(?![\w-])', MAKERS)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\[(data-\w+)", " ".join(LOOKED_FOR)))))
def test_an_attribute_that_scripts_look_for_is_given(name):
    assert re.search(rf'(?<!\[){name}="?', PAGES + PYTHON) or re.search(rf'"{name}":|dataset\.{name[5:]} =', SCRIPTS)


def is_given(name: str) -> bool:
    """It stands somewhere as a word, or is put together (`status-NEW`) with an end that does."""
    if re.search(rf"""[\s"'`.]{name}(?![\w-])""", MAKERS):
        return True
    begin, _, end = name.partition("-")
    if not re.search(rf"(?<![\w-]){begin}-(?:\{{\{{|\$?\{{|' ~)", MAKERS + assets.style()):
        return False
    ends = MAKERS + PACKAGE + "".join(f'"{kind}"' for kind in vocabulary.LOOKS)
    return end.isdigit() or bool(re.search(rf"""["']{end}["']""", ends))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\.([a-z][\w-]*)", re.sub(r"\{[^{}]*\}", " ", STYLES)))))
def test_a_class_that_has_a_style_is_given(name):
    assert is_given(name)


def test_looks_that_templates_name_are_in_a_style():
    named = {f"k-{kind}" for kind in re.findall(r'swatch\("([\w-]+)"\)', PAGES)}
    named |= set(re.findall(r'["\s]([kpt]-[\w-]+)(?=["\s])', PAGES))
    assert len(named) > 5
    assert [name for name in sorted(named) if f".{name}" not in assets.style() + STYLES] == []


def keys_of(interface: str) -> set[str]:
    """The fields of an interface of types.d.ts, or of a type beside the script that reads it; without optional ones."""
    body = re.search(rf"interface {interface} \{{\n(.*?)\n\}}", TYPES, re.DOTALL)
    fields = (
        body[1]
        if body
        else re.search(rf"@typedef \{{\{{ ((?:(?!@typedef).)*?) \}}\}} {interface}\b", SCRIPTS, re.DOTALL)[1]
    )
    fields = re.sub(r"\{[^{}]*\}|\[[^\[\]]*\]", "", fields)
    return set(re.findall(r"(?:^|[,;{])\s*(?:\* +)?(\w+):", fields, re.MULTILINE))


def optional_of(interface: str) -> set[str]:
    return set(re.findall(r"(\w+)\?:", re.search(rf"interface {interface} \{{\n(.*?)\n\}}", TYPES, re.DOTALL)[1]))


def test_keys_of_the_vocabulary_are_those_that_scripts_read():
    assert {*vocabulary.by_key()} == keys_of("Vocabulary")


def test_keys_of_the_steps_are_those_that_the_chart_reads():
    made = step_chart(once.results("ddp"))
    assert {*made} == keys_of("Steps") | {"left_out"}  # the template's


@pytest.mark.parametrize("name", ["ddp", pytest.param("fsdp_full", marks=pytest.mark.thorough)])
def test_keys_of_the_timeline_are_those_that_scripts_read(name):
    data = timeline_data(once.results(name))
    meta = json.loads(unpacked(data.meta))
    made_by_scripts = {"hasWaits", "begin", "end", "rankOf", "read", "instances"}
    assert {*meta} | made_by_scripts == keys_of("Timeline")
    assert {key for entry in meta["ranks"] for key in entry} == keys_of("RankEntry")
    columns = {name for entry in meta["ranks"] for name in entry["operations"]["columns"]}
    assert columns <= keys_of("Rank")
    assert {key for entry in meta["host"]["lanes"] for key in entry} == keys_of("HostEntry")
    assert {*meta["host"]} == keys_of("Host")
    of_counters = {key for entry in meta["counters"] for key in entry}
    assert keys_of("CounterEntry") <= of_counters <= keys_of("CounterEntry") | optional_of("CounterEntry")
    numbers = {"count", *meta["path"]["table"]["columns"]}
    assert {*meta["path"]} - optional_of("Path") == keys_of("Path") - numbers
