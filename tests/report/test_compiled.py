"""Templates that a wheel carries as code: the same code as a source tree makes, and only for the jinja2 that made it."""

import jinja2
import pytest

from traceanalyzer.report import assets, compiled


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    compiled.compile_all(assets.templates(), folder / "compiled")
    return folder


def test_each_template_becomes_the_code_that_the_page_s_own_environment_makes(package):
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, **compiled.SYNTAX)
    environment.filters |= assets.environment().filters
    names = [str(path.relative_to(assets.templates()).as_posix()) for path in assets.templates().rglob("*.html")]
    assert len(names) == len(list((package / "compiled").glob("tmpl_*.py"))) > 15
    for name in names:
        expected = environment.compile(assets.read(name), name, raw=True, defer_init=True)
        module = package / "compiled" / jinja2.ModuleLoader.get_module_filename(name)
        assert module.read_text(encoding="utf-8") == expected, name


def test_a_template_is_compiled_once_until_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "cache_from_source", lambda _: str(tmp_path / "compiled.pyc"))
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    made = []

    def page(text):
        (tmp_path / "x.html").write_text(text, encoding="utf-8")
        loader = jinja2.FileSystemLoader(tmp_path)
        environment = jinja2.Environment(loader=loader, bytecode_cache=compiled.kept(), **compiled.SYNTAX)
        compile_ = environment.compile
        environment.compile = lambda *given: made.append(given) or compile_(*given)
        return environment.get_template("x.html").render(word="<b>")

    assert [page("{{ word }}"), page("{{ word }}"), page("{{ word }}!")] == ["&lt;b&gt;", "&lt;b&gt;", "&lt;b&gt;!"]
    assert len(made) == 2
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    assert compiled.kept() is None
