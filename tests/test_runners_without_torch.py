"""What the runners say where PyTorch is not installed."""

import subprocess
import sys

import pytest

NO_TORCH = "import runpy, sys; sys.modules['torch'] = None; "


@pytest.mark.parametrize("argument", ["--help", "--strategy=single"])
def test_the_command_is_one_line_and_code_2(argument):
    code = NO_TORCH + "runpy.run_module('traceanalyzer.runners', run_name='__main__', alter_sys=True)"
    done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("error: the runners need PyTorch: in a clone of traceanalyzer, pip install '.[runners]'\n")


def test_the_library_is_one_traceback():
    code = NO_TORCH + "from traceanalyzer.runners import traced"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.strip().endswith("pip install '.[runners]'")
