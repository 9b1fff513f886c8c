"""Files without an end, and devices in place of files, are refused before they fill the memory."""

import pytest

from traceanalyzer.cli import run
from traceanalyzer.files import whole


def test_no_more_than_was_agreed_on(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 5000)
    assert len(whole.content(tmp_path / "a", 5000)) == 5000
    with pytest.raises(OSError, match="larger than"):
        whole.content(tmp_path / "a", 4999)


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "--topo", "/dev/zero"],
        ["doctor", "--nccl-log", "/dev/zero"],
        ["doctor", "--inspector", "/dev/zero"],
        ["doctor", "--xpu-timer", "/dev/zero"],
        ["doctor", "--flight-recorder", "/dev/zero"],
        ["diff", "a", "b", "--gates", "/dev/zero"],
        ["diff", "/dev/zero", "/dev/zero"],
        ["--trace-dir", "/dev/zero"],
        ["--trace-file", "/dev/zero"],
    ],
)
def test_a_device_in_place_of_a_file(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert "/dev/zero" in capsys.readouterr().err
