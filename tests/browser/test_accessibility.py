"""axe-core finds no violation on any page, in either theme and with every table open; and no page is wider than a phone."""

import tarfile

import pytest

from tests.npm import fetched

pytestmark = pytest.mark.browser

PAGES = ("moe", "comparison", "doctor", "memory", "trend")

WITHOUT_REPEATED_ROWS = """() => { for (const body of document.querySelectorAll('tbody')) { const seen = new Map();
for (const row of [...body.rows]) { const kind = row.className + [...row.cells].map(c => c.className).join();
seen.set(kind, (seen.get(kind) ?? 0) + 1); if (seen.get(kind) > 2) row.remove(); } } }"""
"""Two rows of each sort of a table: axe looks at every cell of thousands, and finds in the third what is in the first."""


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """axe-core's script from the npm registry; it weighs half a megabyte, so it is not kept here."""
    folder = tmp_path_factory.mktemp("axe")
    fetched("axe-core@4", folder)
    with tarfile.open(next(folder.glob("axe-core-*.tgz"))) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode("utf-8")


@pytest.fixture
def path_of(request, written):
    return lambda name: written(name)[1] if name in ("ddp", "moe") else request.getfixturevalue(f"{name}_page")


@pytest.mark.parametrize("name", [pytest.param("ddp", marks=pytest.mark.thorough), *PAGES])
def test_axe_finds_no_violation(name, axe, path_of, opened):
    with opened(path_of(name), timeline=name in ("ddp", "moe")) as page:
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
        page.evaluate(WITHOUT_REPEATED_ROWS)
        page.evaluate(axe)
        # Another theme changes colours alone.
        for theme, rules in (("light", None), ("dark", ["color-contrast"])):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            found = page.evaluate(
                "rules => axe.run(document, {resultTypes: ['violations'], ...(rules && {runOnly: rules})})", rules
            )
            wrong = [
                (rule["id"], rule["impact"], [node["html"][:160] for node in rule["nodes"][:3]])
                for rule in found["violations"]
            ]
            assert wrong == [], theme


@pytest.mark.parametrize("name", PAGES[1:])
def test_other_pages_fit_a_phone_with_everything_open(name, path_of, opened):
    with opened(path_of(name), timeline=False) as page:
        page.set_viewport_size({"width": 360, "height": 740})
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.screenshot(full_page=True)  # a console error on the way fails the page
