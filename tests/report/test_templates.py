"""Every name in a template is one that its page has: a misspelt attribute, column or macro is an error here.

All of a template is looked at, whichever way its conditions go.
"""

import jinja2
import pytest

from tests import once
from tests.report import small_pages
from tests.report.template_names import macros_of, names_of
from tests.report.test_memory_of_a_comparison import report
from traceanalyzer.report import Report, assets
from traceanalyzer.report.comparison import memory_page
from traceanalyzer.report.table_view import TableView
from traceanalyzer.report.writers import html

ABSENT = {
    "page/body.html": {"care": list[str]},
    "page/report.html": {"version": str},
    "page/diff.html": {"doubt": str},
    "page/doctor.html": {"command": str},
    "page/memory.html": {"command": str, "fit": TableView, "assumptions": str},
}
"""Types of what none of the pages has that are drawn here."""


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Every page's templates."""
    contexts = {}
    kept = jinja2.Template.render

    def render(self, *given, **named):
        contexts.setdefault(self.name, []).append(dict(*given, **named))
        return kept(self, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Template, "render", render)
        html.page(Report("pp", once.results("pp")))  # it has every section
        for page in (small_pages.comparison, small_pages.doctor, small_pages.memory, small_pages.trend):
            page(tmp_path_factory.mktemp("page"))
        memory_page(report().memory, "base", "command")
    contexts.pop("page/part.html")  # it draws what the body names
    contexts.pop(None, None)  # texts of the doctor, which are no pages
    return [names_of(page, own, **ABSENT.get(page, {})) for page, own in contexts.items()]


def test_templates_use_what_their_pages_hand_them(followed):
    assert [wrong for page in followed for wrong in page.wrong] == []


def test_every_template_and_macro_is_used(followed):
    pages = {path.relative_to(assets.templates()).as_posix() for path in assets.templates().rglob("*.html")}
    assert pages - set().union(*(page.followed for page in followed)) == {"page/part.html"}
    macros = {(page, name) for page in pages for name in macros_of(page)}
    assert macros - set().union(*(page.called for page in followed)) == set()
