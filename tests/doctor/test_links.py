"""Links in folders that the doctor is given are followed only where it is asked to."""

import shutil

import pytest

from tests.doctor.builders import dump, entry, write_dumps
from traceanalyzer.cli import run
from traceanalyzer.doctor.inputs import log_files, texts_beside
from traceanalyzer.errors import InputError

LOG = "host:1:1 [0] NCCL INFO Bootstrap : Using eth0\n"


@pytest.fixture
def linked(tmp_path):
    """A folder whose only log is a link to a file outside it."""
    (tmp_path / "out.log").write_text(LOG)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").symlink_to(tmp_path / "out.log")
    return tmp_path / "in"


def test_links_to_logs(linked):
    with pytest.raises(InputError, match=r"no log in it; .*a\.log: skipped, a link to outside the folder"):
        log_files(linked)
    assert log_files(linked, follows_links=True) == [linked / "a.log"]
    assert texts_beside(linked) == (None, [])


def test_links_to_dumps(tmp_path, capsys):
    write_dumps(tmp_path / "real", {rank: dump([entry(0)], (0, 1)) for rank in (0, 1)})
    shutil.copytree(tmp_path / "real", tmp_path / "in")
    inside = sorted((tmp_path / "in").iterdir())
    outside = tmp_path / "real" / inside[1].name
    inside[1].unlink()
    inside[1].symlink_to(outside)
    assert run(["doctor", "--flight-recorder", str(tmp_path / "in"), "--json"]) == 0
    assert "skipped, a link to outside the folder" in capsys.readouterr().out
    assert run(["doctor", "--flight-recorder", str(tmp_path / "in"), "--json", "--follow-links"]) == 0
    assert "skipped, a link" not in capsys.readouterr().out
