"""What the packed ids of an export hold: `globalPid` and `globalTid` are machine, VM, process and thread."""

import numpy as np

_LOW = 0xFFFFFF


def process_of(global_id: np.ndarray) -> np.ndarray:
    """Machine, VM and process: what joins the tables of one process, unique within an export."""
    return global_id >> 24


def thread_of(global_tid: np.ndarray) -> np.ndarray:
    """The thread's id in its operating system."""
    return global_tid & _LOW


def process_number(process: int) -> int:
    """The process id in its operating system, from `process_of`."""
    return process & _LOW
