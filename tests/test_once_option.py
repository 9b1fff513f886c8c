"""`--once FILE` leaves out the tests that the file names, and adds those that run: a second run takes the others."""

from types import SimpleNamespace

from tests import conftest


class Item:
    def __init__(self, name):
        self.nodeid = name

    def get_closest_marker(self, _name):
        return None


def session(file):
    config = SimpleNamespace(getoption={"--once": str(file)}.get, hook=SimpleNamespace(pytest_deselected=lambda **_: 0))
    return SimpleNamespace(config=config)


def chosen(file):
    items = [Item("a.py::ran"), Item("a.py::skipped"), Item("a.py::failed")]
    conftest.pytest_collection_modifyitems(session(file).config, items)
    return [item.nodeid for item in items]


def test_what_ran_is_left_out_the_next_time(tmp_path, monkeypatch):
    file, done = tmp_path / "ran", []
    monkeypatch.setattr(conftest, "_DONE", done)
    assert len(chosen(file)) == 3
    for name, is_skipped in (("a.py::ran", False), ("a.py::skipped", True), ("a.py::failed", False)):
        conftest.pytest_runtest_logreport(SimpleNamespace(nodeid=name, when="call", skipped=is_skipped))
    conftest.pytest_sessionfinish(session(file))
    assert chosen(file) == ["a.py::skipped"]
    done[:] = ["a.py::skipped"]
    conftest.pytest_sessionfinish(session(file))
    assert chosen(file) == []
