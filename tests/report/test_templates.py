"""Every name in a template is one that its page has, and every template and macro is used."""

import re

import jinja2
import pytest
from jinja2 import meta

from tests import once
from tests.report import small_pages
from tests.report.test_memory_of_a_comparison import report
from traceanalyzer.report import Report, assets
from traceanalyzer.report.comparison import memory_page
from traceanalyzer.report.writers import html

TEXTS = {path.relative_to(assets.templates()).as_posix(): path.read_text(encoding="utf-8")
         for path in assets.templates().rglob("*.html")}  # fmt: skip


@pytest.fixture(scope="module")
def handed(tmp_path_factory):
    """By page the names that its templates see."""
    found = {}
    kept = jinja2.Template.render

    def render(self, *given, **named):
        found.setdefault(self.name, set()).update(dict(*given, **named))
        return kept(self, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Template, "render", render)
        html.page(Report("pp", once.results("pp")))  # it has every section
        for page in (small_pages.comparison, small_pages.doctor, small_pages.memory, small_pages.trend):
            page(tmp_path_factory.mktemp("page"))
        memory_page(report().memory, "base", "command")
    return {name: own for name, own in found.items() if name in TEXTS and name != "page/part.html"}


def used_by(name):
    """A template with those that it extends, includes or imports; what the body draws by name is in `sections/`."""
    own = [one for one in meta.find_referenced_templates(assets.environment().parse(TEXTS[name])) if one in TEXTS]
    drawn = re.findall(r'drawn\("[^"]+", "([^"]+)"', TEXTS[name])
    sections = [one for one in TEXTS if one.startswith("sections/")] if "sections_of" in TEXTS[name] else []
    return {name}.union(*(used_by(one) for one in (*own, *drawn, *sections)))


def test_templates_use_what_their_pages_hand_them(handed):
    for page, own in handed.items():
        known = own | assets.environment().globals.keys() | {"section", "result", "part_template", "macros", "care"}
        macros = {"page/macros.html"} - {page.replace("body", "macros")}  # most are for the body alone
        for name in used_by(page) - macros:
            known |= {
                one
                for names in re.findall(r"{% (?:set|macro|from .* import) ([\w, ]+?)(?: =| %}|\()", TEXTS[name])
                for one in names.split(", ")
            }
            assert meta.find_undeclared_variables(assets.environment().parse(TEXTS[name])) <= known, (page, name)


def test_every_template_and_macro_is_used(handed):
    assert set(TEXTS) - set().union(*map(used_by, handed)) == {"page/part.html"}
    every = "\n".join(TEXTS.values())
    assert [name for name in re.findall(r"{% macro (\w+)", every) if len(re.findall(rf"\b{name}\b", every)) < 2] == []
