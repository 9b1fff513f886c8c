"""On which GPU of which process an operation ran, where its row leaves one of the two out."""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.model.schema import NONE
from traceanalyzer.readers.nsys.ids import process_of
from traceanalyzer.readers.nsys.source import int_values

DEVICES = 1 << 16
"""Above all numbers of a machine's GPUs."""

Pair = tuple[int, int]
"""Process and device; -1 for what is not known."""


def stated(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Process and device of each row; -1 for what it does not say, and for devices that cannot be."""
    pid, device = int_values(rows, "globalPid"), int_values(rows, "deviceId")
    process = np.where(pid == NONE, NONE, process_of(pid))
    return process, np.where((device < 0) | (device >= DEVICES), NONE, device)


def distinct(process: np.ndarray, device: np.ndarray) -> set[Pair]:
    """The pairs that occur."""
    pairs = pd.DataFrame({"process": process, "device": device}).drop_duplicates()
    return {(int(one), int(number)) for one, number in pairs.itertuples(index=False, name=None)}


def settled(pairs: Collection[Pair]) -> dict[Pair, Pair | None]:
    """Where the operations of each pair count: a process's on its only GPU, a GPU's with its only process.

    0 stands for what no row says. `None`: it may be of several, or of a process that no whole row names.
    """
    whole = [pair for pair in pairs if NONE not in pair]
    return {pair: pair if NONE not in pair else _only(pair, whole) for pair in pairs}


def _only(pair: Pair, whole: Sequence[Pair]) -> Pair | None:
    process, device = pair
    may_be = [one for one in whole if process in (NONE, one[0]) and device in (NONE, one[1])]
    if len(may_be) == 1:
        return may_be[0]
    is_of_others = bool(may_be) or (process == NONE and bool(whole))
    return None if is_of_others else (max(process, 0), max(device, 0))
