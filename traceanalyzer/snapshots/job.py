"""What is known of a job of which there are memory snapshots and no traces: its run.json, gates, what would fit."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from traceanalyzer.analyses.base import typed
from traceanalyzer.analyses.memory.memory import Memory
from traceanalyzer.analyses.memory.memory_fit import YES, MemoryFit, estimate, largest_batch, placed
from traceanalyzer.diff import Capture
from traceanalyzer.discovery.clustering import RUN_INFO
from traceanalyzer.errors import UsageError
from traceanalyzer.job.model_state import Model
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.meaning.columns import Unit, unit_of
from traceanalyzer.meaning.quantities import size_text
from traceanalyzer.snapshots.examination import Examined

SOURCE = "memory snapshot"

_CAPACITY = re.compile(r"total capacity of (\d{1,9}(?:\.\d{1,9})?) ([GM])iB")
"""In PyTorch's message of a failed request."""

_ADVICE = "If reserved but unallocated"
"""Begins what PyTorch's message says to every failed request alike."""

_ENDS = {"oom": "ran out of memory", "failed": "failed"}


@dataclass(frozen=True, slots=True)
class Job:
    """What is known beside the snapshots.

    Attributes:
        sentences: how the run ended, and what its model should take.
        memory: the ranks' peaks, as a report of traces has them.
        fit: what the model should take and what would fit; `None` where the model is not known.
        world: ranks of the job, as its run.json says.
    """

    sentences: tuple[str, ...]
    memory: Memory
    fit: MemoryFit | None
    world: int | None


def run_json(paths: Sequence[Path]) -> Path | None:
    """The run.json of these snapshots: in the folder that holds them all, or the one around it."""
    folder = Path(os.path.commonpath([path.absolute().parent for path in paths]))
    return next((place / RUN_INFO for place in (folder, folder.parent) if (place / RUN_INFO).is_file()), None)


def job_of(examined: Sequence[Examined], info: RunInfo | None, model: Model | None, skipped: Sequence[str] = ()) -> Job:
    """What the run's own record and its model add to its snapshots; `skipped` are those that cannot be read."""
    error = (info.error or "") if info else ""
    device = (
        int(float(found[1]) * (1 << 30 if found[2] == "G" else 1 << 20)) if (found := _CAPACITY.search(error)) else None
    )
    memory = _memory(examined, device)
    peaks = memory.table["peak_allocated_bytes"].dropna()
    world = info.world_size if info else None
    fit = None
    if model is not None:
        count = world or len(examined) + len(skipped)
        model = placed(model, device, count)
        fit = estimate(model, device, count, int(peaks.max()) if len(peaks) else None)
    return Job((*_ended(info), *_expected(fit, model), *skipped), memory, fit, world)


def ranks(job: Job) -> pd.DataFrame:
    """`rank` and `world_size` of the snapshots, by which a gate knows that ranks are missing.

    Raises:
        UsageError: names of several files do not tell whose they are.
    """
    known = job.memory.table["rank"]
    if not known.is_unique:
        raise UsageError(
            "gates need to know whose each snapshot is: say the rank in the files' names, as in rank3_snapshot.pickle"
        )
    return pd.DataFrame({"rank": known, "world_size": job.world or int(known.max()) + 1})


def capture_of(examined: Sequence[Examined], info: RunInfo | None, label: str) -> Capture:
    """The ranks' peaks as a comparison's gates look at them.

    Raises:
        UsageError: names of several files do not tell whose they are.
    """
    job = job_of(examined, info, None)
    tables = {"memory": job.memory.to_frame(), "ranks": ranks(job)}
    return Capture(label, SOURCE, tables, steps=(), is_exact=True, info=info)


def _memory(examined: Sequence[Examined], device_bytes: int | None) -> Memory:
    """A row a snapshot; what only a history tells is absent without one."""
    rows = [
        {
            "rank": one.snapshot.rank or 0,
            "source": SOURCE,
            "events": len(one.snapshot.history),
            "allocated_bytes": one.end["allocated"],
            "peak_allocated_bytes": one.peak_allocated_bytes
            if one.has_history and not one.contradicted_bytes
            else None,
            "reserved_bytes": one.end["reserved"],
            "peak_reserved_bytes": _most_reserved(one),
            "device_bytes": device_bytes,
        }
        for one in examined
    ]
    sizes = dict.fromkeys((name for name in rows[0] if unit_of(name) is Unit.BYTES), "Int64")
    return Memory(typed(pd.DataFrame(rows), sizes))


def _most_reserved(one: Examined) -> int | None:
    return max(int(one.levels["reserved_bytes"].max()), one.end["reserved"]) if one.has_history else None


def _ended(info: RunInfo | None) -> tuple[str, ...]:
    """How the run ended, where its run.json says that it did not end well."""
    if info is None or info.status not in _ENDS:
        return ()
    error = (info.error or "").partition(_ADVICE)[0].rstrip(" .")
    return (f"The run {_ENDS[info.status]}, as its run.json says{f': {error}' if error else ''}.",)


def _expected(fit: MemoryFit | None, model: Model | None) -> tuple[str, ...]:
    """What the run's own setting should take, and what would fit instead; nothing where totals are not known."""
    if fit is None or model is None:
        return ()
    table = fit.table[fit.table["total_bytes"].notna()]
    own, others = table[table["is_own"]], table[(table["fits"] == YES) & ~table["is_own"]]
    other = None if others.empty else _setting(others.iloc[0])
    if own.empty:
        return () if other is None else (f"By estimate {other} would fit.",)
    needed, device = int(own["total_bytes"].iloc[0]), own["device_bytes"].iloc[0]
    told = f"By estimate the model takes {size_text(needed)} on a GPU as it is trained"
    if pd.isna(device):
        return (f"{told} (--model gpu=80G adds what would fit).",)
    told = f"{told}, and a GPU has {size_text(int(device))}"
    if own["fits"].iloc[0] == YES:
        return (f"{told}: what is held beyond it is not the model's.",)
    return (f"{told}: {_instead(model, other)}.",)


def _instead(model: Model, other: str | None) -> str:
    """What would fit: smaller micro-batches of what is trained first, as they change least."""
    ways = []
    for one, how in ((model, ""), (replace(model, checkpoint=True), "with activation checkpointing ")):
        if found := largest_batch(one):
            ways.append(f"{how}at a micro-batch of {found[0]} ({size_text(found[1])})")
    if ways:
        return f"it would fit {', or '.join(dict.fromkeys(ways))}"
    return f"{other} would fit" if other else "no other setting that is looked at fits"


def _setting(row: pd.Series) -> str:
    ways = [f"{name}={row[name]}" for name in ("tp", "pp") if row[name] > 1]
    ways += ["activation checkpointing"] if row["checkpointing"] else []
    named = f"{row['strategy']}{' with ' + ' and '.join(ways) if ways else ''}"
    batch = "" if pd.isna(row["micro_batch"]) else f" at a micro-batch of {row['micro_batch']}"
    return f"{named}{batch} needs {size_text(int(row['total_bytes']))} and"
