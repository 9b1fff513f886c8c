"""What a worker does that the system ends; alone here, so that a process that does it loads nothing of the tests."""

import os
import signal


def kill_once(capture, mark):
    """A worker that the system ends at one file: once, or each time."""
    if capture.path.name == "rank1.json" and (mark is None or not mark.exists()):
        if mark is not None:
            mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return capture.path.name
