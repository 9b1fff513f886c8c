"""A simulated job, recorded, read back and analysed."""

import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import traceanalyzer as ta
from tests.simulator import Capture, Job, Run, capture, kineto, nsys, run
from traceanalyzer.analyses import Result
from traceanalyzer.analyses.replay.changes import Change


def analysed(job: Job, *names: str, how: Capture | None = None, by: str = "kineto") -> tuple[Run, dict[str, Result]]:
    """The truth of the job, and the named Results from its files: Kineto's, or a report of Nsight Systems (`nsys`).

    Tests that ask several things of one job come after each other: it is simulated and analysed once for them.
    """
    return _made(pickle.dumps((job, how or Capture(), by)), names)


@lru_cache(maxsize=16)
def _made(recorded: bytes, names: tuple[str, ...]) -> tuple[Run, dict[str, Result]]:
    job, how, by = pickle.loads(recorded)
    truth = run(job)
    captured = capture(truth, how)
    with tempfile.TemporaryDirectory() as folder:
        if by == "nsys":
            nsys.write_reports(captured, Path(folder))
        else:
            kineto.write(captured, Path(folder))
        return truth, ta.analyse(ta.load(folder), *names)


def steps_of(replay: Any, *changes: Change) -> tuple[float, float]:
    """The mean step as replayed without and with changes, in ns."""
    before, after = replay.engine.steps([(), changes]).mean(axis=0)
    return float(before), float(after)


def saved_ns(replay: Any, *changes: Change) -> float:
    """By how much it is shorter with them."""
    before, after = steps_of(replay, *changes)
    return before - after


def repeated(results: Mapping[str, Result], times: int) -> dict[str, Result]:
    """What a page shows of `times` as many ranks, each block of them like the first: nothing more is simulated."""
    count = len(results["ranks"].table)
    made = {}
    for name, result in results.items():
        table = result.table
        has_ranks = "rank" in table and table["rank"].notna().all()
        blocks = [table.assign(rank=table["rank"] + count * at) for at in range(times)] if has_ranks else []
        made[name] = replace(result, table=pd.concat(blocks, ignore_index=True)) if blocks else result
    return made


def true_waits(truth: Run, call_waits: pd.DataFrame, how: Capture | None = None) -> pd.DataFrame:
    """Each measured call with the true wait of the call that ended then, on the rank's own clock."""
    offsets = (how or Capture()).offset_ns
    rows = [
        (rank, call.op.end_ns + offsets.get(rank, 0), call.wait_ns, str(call.key))
        for rank, calls in truth.calls.items()
        for call in calls
    ]
    known = pd.DataFrame(rows, columns=["rank", "true_end_ns", "true_wait_ns", "key"])
    measured = call_waits.assign(true_end_ns=call_waits["end_ns"] - np.int64(kineto.BASE_NS))
    return measured.merge(known, on=["rank", "true_end_ns"], how="left", validate="one_to_one")
