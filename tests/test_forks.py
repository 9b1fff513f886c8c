"""Work in forks of the program: the same comes of it, and whatever becomes of them."""

import subprocess
import sys
from pathlib import Path

from traceanalyzer.execution import aside, can_fork

CAPTURE = Path(__file__).parent / "captures" / "moe" / "rank0.json.gz"

_IN_A_PROGRAM = """
import os, signal, sys
from pathlib import Path
from pandas.testing import assert_frame_equal
from traceanalyzer.analyses import engine, reduce_rank
from traceanalyzer.execution import IS_PROGRAM, all_aside, aside, can_fork
from traceanalyzer.kinds import KindRules
from traceanalyzer.files import bounds
from traceanalyzer.readers.base import FILE_ORDER, RankHint
from traceanalyzer.readers.kineto import read

IS_PROGRAM.set(True)
own = os.getpid()
assert can_fork()
assert aside(os.getpid)() != own
assert aside(os.getpid, processes=1)() == own

def fail():
    raise OSError(28, "disk full")

try:
    aside(fail)()
    sys.exit("no error came back")
except OSError as error:
    assert error.errno == 28

def killed():
    return own if os.getpid() == own else os.kill(os.getpid(), signal.SIGKILL)

assert aside(killed)() == own
several = all_aside([os.getpid, killed, os.getppid, fail, lambda: b"x" * (1 << 20)])
assert len(several[4]()) == 1 << 20  # in any order, each as large as may be
assert several[0]() != own
assert several[2]() == own
try:
    several[3]()
    sys.exit("no error came back")
except OSError as error:
    assert error.errno == 28
assert several[1]() == own
try:
    os.waitpid(-1, os.WNOHANG)
    sys.exit("a fork was not waited for")
except ChildProcessError:
    pass
assert aside(lambda: (lambda: own))()() == own  # what cannot be sent is made here

trace = next(read(Path(sys.argv[1]), RankHint(0, FILE_ORDER), KindRules()))
alone = reduce_rank(trace)
forks = []
engine.aside = lambda work, **how: forks.append(work) or aside(work, **how)
engine.all_aside = lambda works, **how: forks.extend(works) or all_aside(works, **how)
engine.LARGE, bounds.LARGE_BYTES, bounds._is_on_disk = 0, 1000, lambda _: True
for processes in (2, 9):
    with bounds.spilling_to(None):
        shared = reduce_rank(trace, processes=processes)
    assert [*shared] == [*alone]
    for name, table in alone.items():
        same = [column for column in table if column != "piece"]
        assert_frame_equal(shared[name][same], table[same], obj=name)
assert len(forks) == 1 + 8

print("the same")
"""


def test_forks_of_the_program():
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_PROGRAM, str(CAPTURE)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("the same\n", "", 0)


def test_a_users_process_is_not_forked():
    assert not can_fork()
    begun = []
    assert aside(lambda: begun.append(1))() is None
    assert begun == [1]
