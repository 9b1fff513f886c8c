"""Pickles of others: plain data is read, all else is refused before it runs."""

import collections
import errno
import gc
import gzip
import io
import pickle
import random

import pytest

from traceanalyzer.errors import InputError
from traceanalyzer.files import bounds, safe_pickle

PLAIN = {"a": [1, 2.5, None, True, b"x", ("y", {"z"}), 1 << 80], "b": {"c": "é" * 300}}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_plain_data_of_every_protocol(tmp_path, protocol, pack):
    plain = (
        {"a": [1, 2.5, None, True], "b": ("y", 1 << 80)} if protocol < 4 else PLAIN
    )  # sets and bytes name code there
    (tmp_path / "file").write_bytes(pack(pickle.dumps(plain, protocol=protocol)))
    assert safe_pickle.read(tmp_path / "file") == plain


def nested(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


class Runs:
    def __reduce__(self):
        return (eval, ("open('ran', 'w')",))


@pytest.mark.parametrize("content", [
    pickle.dumps(Runs()), pickle.dumps(collections.OrderedDict(a=1)), pickle.dumps(len), b"cos\nsystem\n(S'touch ran'\ntR.",
    pickle.dumps(nested(safe_pickle.MOST_DEPTH + 2)), b"(" * 100_000, b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", b"", b"no pickle",
    b"\x80\x02\x82\x01.", b"Pid\n.", gzip.compress(b"\x80\x04}")[:-6],
], ids=["eval", "class", "function", "system", "deep", "marks", "huge string", "empty", "text", "extension", "persistent", "cut gzip"])  # fmt: skip
def test_all_else_is_refused_and_nothing_runs(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="file"):
        safe_pickle.loads(content, "file")
    assert list(tmp_path.iterdir()) == []


def test_size_is_bounded(monkeypatch):
    monkeypatch.setattr(bounds, "FREE_BYTES", 1000)
    monkeypatch.setattr(bounds, "MOST_TIMES", 20)
    with pytest.raises(InputError, match="unpacks to over"):
        safe_pickle.loads(gzip.compress(pickle.dumps(b"x" * 5000)), "file")


def test_shared_containers_are_looked_at_once():
    made = []
    for _ in range(40):
        made = [made, made]
    found = safe_pickle.loads(pickle.dumps(made), "file")
    assert found[0] is found[1]


def test_a_few_bytes_cannot_ask_for_all_memory():
    with pytest.raises(InputError, match="more memory"):
        safe_pickle.loads(b"\x80\x02]r\xff\xff\xff\xf0.", "bomb")


class _Failing(io.BytesIO):
    """A file of which the disk gives the first bytes only."""

    def readinto(self, buffer):
        return super().readinto(buffer) if self.tell() < 1000 else self._fail()

    def read(self, size=-1):
        return super().read(min(size, 500)) if self.tell() < 1000 else self._fail()

    def _fail(self):
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_read_error_in_the_middle_is_said_and_nothing_is_left_on_stderr(pack, capfd):
    content = pack(pickle.dumps(random.Random(0).randbytes(100_000)))
    with pytest.raises(InputError, match=r"^it: cannot be read \(Input/output error\)$"):
        safe_pickle.load(_Failing(content), "it")
    gc.collect()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("size", [1 << 40, (1 << 62) + 5])
def test_an_array_that_does_not_fit_says_nothing_beside_the_error(capsys, size):
    for _ in range(50):  # CPython's complaint depends on what its memory held
        with pytest.raises(InputError, match=r"file: (refused|not a pickle)"):
            safe_pickle.loads(b"\x80\x05\x96" + size.to_bytes(8, "little") + b"x", "file")
    assert capsys.readouterr().err == ""
