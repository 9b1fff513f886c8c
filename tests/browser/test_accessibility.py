"""axe-core finds no violation on any page, in either theme and with every table open; and no page is wider than a phone."""

import tarfile

import pytest

from tests.npm import fetched

pytestmark = pytest.mark.browser

PAGES = ("moe", "comparison", "doctor", "memory", "trend")

WITHOUT_REPEATS = """() => { const every = new Map();
const isMore = (of, kind) => { const seen = every.get(of) ?? every.set(of, new Map()).get(of);
seen.set(kind, (seen.get(kind) ?? 0) + 1); return seen.get(kind) > 2; };
const kindOf = e => [e.tagName, e.className, e.hasAttribute('style'), ...[...e.children].map(c => c.tagName + c.className)].join();
for (const body of document.querySelectorAll('tbody')) for (const row of [...body.rows])
if (isMore(body, row.className + [...row.cells].map(c => c.className).join())) row.remove();
const scrolls = table => { const box = table.closest('.table') ?? table; return box.scrollWidth > box.clientWidth; };
for (const table of [...document.querySelectorAll('table')].filter(table => !scrolls(table))) {
const rows = [...table.rows], count = rows[0]?.cells.length ?? 0;
if (rows.some(row => row.cells.length !== count)) continue;
const more = [...Array(count).keys()].filter(at => isMore(table, rows.map(row => kindOf(row.cells[at])).join()));
for (const at of more.reverse()) for (const row of rows) row.cells[at].remove(); }
for (const term of document.querySelectorAll('dt')) { const said = term.nextElementSibling;
if (said?.tagName === 'DD' && isMore(term.parentElement, kindOf(term) + kindOf(said))) { term.remove(); said.remove(); } } }"""
"""Two of each sort of rows, columns and terms: axe looks at each of thousands, and finds in the third what is in the first.

Tables that scroll keep their columns.
"""


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
        page.evaluate(WITHOUT_REPEATS)
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
