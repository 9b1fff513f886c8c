"""What the runners say where PyTorch is not installed."""

import subprocess
import sys

import pytest

NO_TORCH = "import runpy, sys; sys.modules['torch'] = None; "


def runners(argument):
    code = NO_TORCH + "runpy.run_module('traceanalyzer.runners', run_name='__main__', alter_sys=True)"
    return subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=False)


def test_help_needs_none():
    done = runners("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "bucket_ddp_async" in done.stdout
    assert "--profile-active" in done.stdout


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "--strategy=single",
            "error: the runners need PyTorch: in a clone of traceanalyzer, pip install '.[runners]'\n",
        ),
        ("--strategy=dpp", "invalid choice: 'dpp'"),
    ],
)
def test_what_cannot_run_is_said_with_code_2(argument, message):
    done = runners(argument)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_library_is_one_traceback():
    code = NO_TORCH + "from traceanalyzer.runners import traced"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.strip().endswith("pip install '.[runners]'")
