"""Options of the test run."""

import os
import shutil
import tempfile

import pytest
from hypothesis import settings

# A busy machine is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_configure(config):
    """Nothing is left in the caches of whoever runs the tests."""
    config.stash[_CACHE] = os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="traceanalyzer-cache-")


def pytest_unconfigure(config):
    shutil.rmtree(config.stash[_CACHE], ignore_errors=True)


_CACHE = pytest.StashKey[str]()


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files from today's output")
    parser.addoption("--thorough", action="store_true", help="every simulated job and seed, not a sample of them")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--thorough"):
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


def sampled(cases, every):
    """Every so many of the cases; the others only in a thorough run."""
    return [
        case if not place % every else pytest.param(case, marks=pytest.mark.thorough)
        for place, case in enumerate(cases)
    ]
