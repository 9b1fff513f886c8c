"""`.nsys-rep` files: exported by the user's own nsys into a cache folder, or refused with the command to run."""

import stat

import pytest

from tests.nsys_builders import HINT, export, write_sqlite
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import nsys, reader_of


@pytest.fixture
def report(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "home")
    path = tmp_path / "captures" / "my report.nsys-rep"
    path.parent.mkdir()
    path.write_bytes(b"closed container")
    return path


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program of that name which copies a ready database; it counts its runs."""
    secret = {"TARGET_INFO_SYSTEM_ENV": [{"name": "API_KEY", "value": "hunter2"}]}
    ready = write_sqlite(tmp_path / "ready.sqlite", export() | secret)
    folder = tmp_path / "bin"
    folder.mkdir()
    made = folder / "nsys"
    made.write_text(
        "#!/bin/sh\n"
        f"echo run >> {tmp_path}/runs\n"
        'for word in "$@"; do case "$word" in --output=*) target="${word#--output=}";; esac; done\n'
        f'/bin/cp {ready} "$target"\n'
    )
    made.chmod(made.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))
    return tmp_path / "runs"


def test_without_nsys_the_message_has_the_command(report, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert reader_of(report) is nsys
    command = rf"nsys export --type=sqlite --include-blobs=true '--output={report.with_suffix('.sqlite')}' '{report}'"
    with pytest.raises(NotATraceError) as raised:
        nsys.peek(report)
    assert str(raised.value) == (
        f"{report}: a report as captured, and nsys is not on the PATH; export it with: {command}"
    )


def test_it_is_exported_once_into_the_cache(report, program, tmp_path):
    assert nsys.peek(report).start_ns is not None
    (trace,) = nsys.read(report, HINT, KindRules())
    assert len(trace.gpu_ops) == 4
    assert trace.meta.files == (str(report),)
    assert program.read_text().splitlines() == ["run"]
    (cached,) = (tmp_path / "home").rglob("*.sqlite")
    assert b"hunter2" not in cached.read_bytes()
    assert [path.name for path in report.parent.iterdir()] == [report.name]
    report.write_bytes(b"another capture of that name")
    nsys.peek(report)
    assert len(program.read_text().splitlines()) == 2


def test_an_export_beside_it_is_read_instead(report, program):
    write_sqlite(report.with_suffix(".sqlite"), export())
    with pytest.raises(NotATraceError, match=r"its export my report\.sqlite lies beside it"):
        nsys.peek(report)
    assert not program.exists()


@pytest.mark.usefixtures("program")
def test_a_failing_nsys(report, tmp_path):
    (tmp_path / "bin" / "nsys").write_text("#!/bin/sh\necho SECRET >&2\nexit 3\n")
    with pytest.raises(NotATraceError, match=r"nsys could not export it \(exit code 3\); try: nsys export") as raised:
        nsys.peek(report)
    assert "SECRET" not in str(raised.value)
    assert not list((tmp_path / "home").rglob("*.sqlite"))
