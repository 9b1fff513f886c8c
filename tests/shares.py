"""Which tests one process of a parallel run takes, so that a capture is read, and a file's fixtures are made, once.

xdist has marks for it, `--dist=loadgroup`: with pytest 9.2 they are ignored without a word (pytest-xdist issue 1386).
"""

import re

from xdist.scheduler import LoadScopeScheduling

from tests.samples import EVERY

RUNS_OF_ALL = tuple(f"tests/runners/test_{name}.py" for name in ("strategies", "traces", "zo_offload"))
"""They share one launch of all runners' command lines: a strategy's name is a capture's too."""

SCOREBOARD = "tests/simulator/test_scoreboard.py"
"""Its jobs share nothing and are many: with --thorough, one process would do them all."""


def share(test):
    """The name of what a test is done with, by its id: pages in a browser, a capture's tests, else its file's."""
    file, _, name = test.partition("::")
    if file.startswith("tests/browser/"):
        return "browser"
    if file in RUNS_OF_ALL:
        return "runs"
    if file == SCOREBOARD:
        return test
    given = re.findall(r"(?<=[\[-])\w+(?=[\]-])", name)
    captures = [one for one in given if one in EVERY]
    return captures[0] if captures else file


class Shares(LoadScopeScheduling):
    """xdist's way to give a process the tests of one scope, with other scopes."""

    def _split_scope(self, nodeid):
        return share(nodeid)
