"""Who takes which tests of a parallel run."""

import pytest

from tests.shares import share


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("tests/test_api.py::test_a", "tests/test_api.py"),
        ("tests/analyses/test_a.py::test_a[0-x]", "tests/analyses/test_a.py"),
        ("tests/analyses/test_a.py::test_a[ddp]", "ddp"),
        ("tests/analyses/test_a.py::test_a[ranks-fsdp_full]", "fsdp_full"),
        ("tests/analyses/test_a.py::test_a[nsys_ddp-4]", "nsys_ddp"),
        ("tests/analyses/test_a.py::test_a[my ddp]", "tests/analyses/test_a.py"),
        ("tests/browser/test_page.py::test_a[ddp]", "browser"),
        ("tests/runners/test_command.py::test_a", "tests/runners/test_command.py"),
        ("tests/runners/test_strategies.py::test_a[simple_ddp]", "runs"),
        ("tests/runners/test_traces.py::test_a", "runs"),
        ("tests/simulator/test_scoreboard.py::test_a[x]", "tests/simulator/test_scoreboard.py::test_a[x]"),
    ],
)
def test_a_capture_and_a_file_lie_in_one_process(test, name):
    assert share(test) == name
