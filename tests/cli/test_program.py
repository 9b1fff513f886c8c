"""How the program's process ends."""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import atexit, os, sys, types
from traceanalyzer import __main__

class Held:
    def __del__(self, write=os.write):
        write(1, b"freed\\n")

sys.modules["module"] = types.ModuleType("module")
sys.modules["module"].held = Held()
atexit.register(print, "at the end")
sys.argv[0] = "analyze-traces"
getattr(__main__, sys.argv.pop(1))()
"""


@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("--no-such-option", 2)])
def test_what_is_to_be_done_at_the_end_is_done_and_nothing_is_freed(argument, code):
    # A process whose lines are counted ends as Python has it, so that the counts are written.
    unwatched = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    ended, freed = (
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, how, argument], env=unwatched, capture_output=True, text=True, check=False
        )
        for how in ("program", "main")
    )
    assert (ended.returncode, freed.returncode) == (code, code)
    assert ended.stdout.endswith("at the end\n")
    assert freed.stdout == f"{ended.stdout}freed\n"
    assert ended.stderr == freed.stderr
