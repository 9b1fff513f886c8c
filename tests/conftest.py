"""Options of the test run."""

import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests import once
from tests.shares import Shares
from traceanalyzer.scale import set_up_process, summarise

# A busy machine is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_configure(config):
    """Nothing is left in the caches of whoever runs the tests; what processes of a parallel run share lies beside."""
    if config.getoption("--thorough"):
        _RUN.add("thorough")
    config.stash[_FOLDER] = folder = tempfile.mkdtemp(prefix="traceanalyzer-tests-")
    os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
    if not hasattr(config, "workerinput"):
        os.environ[once.SHARED] = f"{folder}/shared"
        Path(os.environ[once.SHARED]).mkdir()
    set_up_process()  # as the command does: small tables take a quarter less


def pytest_unconfigure(config):
    shutil.rmtree(config.stash[_FOLDER], ignore_errors=True)


_FOLDER = pytest.StashKey[str]()
_RUN: set[str] = set()


_COMMANDS = ("scale", "diff.sources", "agents.verbs")


@pytest.fixture(autouse=True, scope="session")
def _analysed_once():
    """Commands take what captures of the repository give from the test run's one analysis of them."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.dont_write_bytecode:  # each process that a test starts would compile the package: a third of a second
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            patch.setenv("PYTHONPYCACHEPREFIX", f"{os.environ[once.SHARED]}/bytecode")
        for module in _COMMANDS:
            patch.setattr(f"traceanalyzer.{module}.summarise", once.summarise)
        yield


@pytest.fixture
def monkeypatch(monkeypatch):
    """pytest's; what a test has changed is not in what was analysed before: its own files are analysed with it.

    But for the environment, of which no analysis reads, and what imports analyses and is imported by none.
    """
    for name in ("setattr", "delattr", "setitem", "delitem"):
        setattr(monkeypatch, name, _noted(getattr(monkeypatch, name)))
    yield monkeypatch
    once.CHANGED.clear()


def _noted(change):
    return lambda place, *given, **named: _note(place) or change(place, *given, **named)


def _note(place):
    name = place if isinstance(place, str) else getattr(place, "__name__", "")
    if place is not os.environ and not name.startswith(_ABOVE):  # `setenv` is an item that is set
        once.CHANGED.append(place)


_ABOVE = tuple(f"traceanalyzer.{room}." for room in ("cli", "report", "findings", "gate"))


@pytest.fixture
def analysed_anew(monkeypatch):
    """Commands read and analyse each time, as they do for users."""
    for module in _COMMANDS:
        monkeypatch.setattr(f"traceanalyzer.{module}.summarise", summarise)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files from today's output")
    parser.addoption("--thorough", action="store_true", help="every simulated job and seed, not a sample of them")
    parser.addoption("--once", metavar="FILE", help="only tests that it does not name; those that run are added")


_FIRST = ("tests/browser/", "tests/runners/", "tests/simulator/", "tests/cli/", "tests/snapshots/", "tests/test_",
          "tests/report/", "tests/readers/", "tests/scale/")  # fmt: skip
"""Those that take longest begin, and of a file's tests, which one process does, many seconds: at the end no process
waits long for the other."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: not item.nodeid.startswith(_FIRST))
    noted, is_thorough = _noted_in(config.getoption("--once")), config.getoption("--thorough")
    left_out = [
        item for item in items if item.nodeid in noted or (not is_thorough and item.get_closest_marker("thorough"))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = {*left_out}
        items[:] = [item for item in items if item not in gone]


def _noted_in(file):
    return set(Path(file).read_text(encoding="utf-8").splitlines()) if file and Path(file).exists() else set()


def pytest_runtest_logreport(report):
    if report.when == "call" and not report.skipped:
        _DONE.append(report.nodeid)


def pytest_sessionfinish(session):
    file = session.config.getoption("--once")
    if file and not hasattr(session.config, "workerinput"):
        with Path(file).open("a", encoding="utf-8") as noted:
            noted.writelines(f"{one}\n" for one in _DONE)


_DONE = []
"""Tests that have run, and were not skipped for want of what they need."""


def pytest_collection_finish():
    _settle()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    yield
    if nextitem is None or (nextitem.path != item.path and gc.get_count()[0] > _MANY):
        _settle()


_MANY = 50_000
"""Objects that were made since the collector last looked and are still here."""


def _settle():
    """What is here by now (modules, captures, Results) stays: the collector need not go through it again each time.

    At the end of a run that took two to five seconds a time. Files that nobody closed are found first.
    """
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config, log):
    """What one process of a parallel run does: it reads a capture, and makes what a file's tests share, once."""
    return Shares(config, log)


def sampled(cases, every):
    """Every so many of the cases; the others only in a thorough run."""
    return [
        case if not place % every else pytest.param(case, marks=pytest.mark.thorough)
        for place, case in enumerate(cases)
    ]


def examples(few, thorough=1500):
    """The same few random examples each time; many in a thorough run. To make a failing one small would take minutes."""
    return settings(
        max_examples=thorough if "thorough" in _RUN else few,
        derandomize=True,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
