"""Which ranks there are: device, window, versions, and how complete each one's trace is."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, is_true, stack
from traceanalyzer.analyses.names import RanksColumn
from traceanalyzer.job.hosts import Placed
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import single, single_integer
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, table_of
from traceanalyzer.readers.base import DEVICE_NUMBER, DEVICE_ORDER

_OF_ONE_PROCESS = ("kineto", "xplane")
"""Formats whose files hold one process each."""


class Ranks(Result[RanksColumn]):
    """One row for each rank."""

    title: ClassVar[str] = "Ranks"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "rank_source": Column.text("Where its number comes from.", is_secondary=True),
        "files": Column.text("Files that its events come from.", is_secondary=True),
        "format": Column.text("Input format.", is_secondary=True),
        "host": Column.text("Host: as `--hosts` says, the trace, or its run.json; absent where none does."),
        "rack": Column.text("Rack, as `--hosts` says.", is_secondary=True),
        "device": Column.ident("GPU's number on its host.", is_secondary=True),
        "device_name": Column.text("GPU's model."),
        "device_bytes": Column.size("Memory of the GPU; absent where the trace does not say.", adds=Adds.NONE),
        "multiprocessors": Column.number(
            "Multiprocessors of the GPU, or of the slice of it that the process has; absent where no trace says it.",
            is_secondary=True,
        ),
        "devices_seen": Column.number("GPUs that the process saw, used or not.", is_secondary=True),
        "world_size": Column.number("Ranks of the job, as the trace says."),
        "window": Column.text("What of the capture the figures are of.", is_secondary=True),
        "window_start_ns": Column.moment(
            "Start of that window, ns since the epoch (or since the trace's own zero).", is_secondary=True
        ),
        "window_end_ns": Column.moment(
            "Its end. Steps that do not follow each other leave time between that is not of the window.",
            is_secondary=True,
        ),
        "window_ns": Column.time("Length of that window.", better=Better.LESS),
        "capture_ns": Column.time("Length of the profiler's recording.", adds=Adds.DERIVED),
        "events_ns": Column.time(
            "From the first of the rank's events, on CPU or GPU, to the end of the last.",
            is_compared=False,
            is_secondary=True,
        ),
        "operations": Column.count("GPU operations."),
        "operations_without_launch": Column.count(
            "GPU operations whose host call the capture does not have.", is_compared=False
        ),
        "api_calls": Column.count("CUDA API calls on the host.", is_compared=False, is_secondary=True),
        "host_operators": Column.count("CPU operators.", is_compared=False, is_secondary=True),
        "truncated": Column.flag("The file is cut off."),
        "events_skipped": Column.count("Events that could not be read.", is_compared=False),
        "versions": Column.text("Software that the trace names.", written=Written.VERSIONS),
        "notes": Column.text("What else a reader of this rank's figures must know."),
    }

    @property
    def is_one_process(self) -> bool:
        """Whether one process drives the GPUs of all ranks, as far as the traces tell: several, in one trace of it."""
        of_process = self.table["rank_source"].isin((DEVICE_ORDER, DEVICE_NUMBER)) & self.table["format"].isin(
            _OF_ONE_PROCESS
        )
        # Files of two processes may bear one name, but they were not recorded for the same time to the nanosecond.
        is_one_file = len(self.table["files"].unique()) == 1 and len(self.table["capture_ns"].unique()) == 1
        return len(self.table) > 1 and bool(of_process.all()) and is_one_file

    @property
    def cut_off(self) -> frozenset[int]:
        """Ranks whose files are cut off."""
        return frozenset(int(rank) for rank in self.table.loc[is_true(self.table["truncated"]), "rank"])


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's meta data and counts."""
    meta = trace.meta
    known = meta.capture_start_ns is not None and meta.capture_end_ns is not None
    row: dict[str, Any] = {
        "rank_source": meta.rank_source,
        "files": ", ".join(meta.files),
        "format": meta.format,
        "host": meta.host,
        "device": meta.device,
        "device_name": meta.device_name,
        "device_bytes": meta.device_bytes,
        "multiprocessors": meta.multiprocessors,
        "devices_seen": meta.devices_seen,
        "world_size": meta.world_size,
        "window": trace.window.label,
        "window_start_ns": trace.window.start_ns if len(trace.gpu_ops) else None,
        "window_end_ns": trace.window.end_ns if len(trace.gpu_ops) else None,
        "window_ns": trace.window.length_ns if len(trace.gpu_ops) else None,
        "capture_ns": meta.capture_end_ns - meta.capture_start_ns if known else None,  # type: ignore[operator]
        "events_ns": _span_ns(trace.gpu_ops, trace.api_calls, trace.host_ops, trace.ranges),
        "operations": len(trace.gpu_ops),
        "operations_without_launch": int(np.count_nonzero(array_of(trace.gpu_ops, "launch") == NONE)),
        "api_calls": len(trace.api_calls),
        "host_operators": len(trace.host_ops),
        "truncated": meta.is_truncated,
        "events_skipped": meta.events_skipped,
        "versions": ", ".join(f"{name} {version}" for name, version in meta.versions.items()) or None,
        "notes": " ".join(meta.notes) or None,
    }
    integers = (
        "device", "device_bytes", "multiprocessors", "devices_seen", "world_size", "window_start_ns", "window_end_ns",
        "window_ns", "capture_ns", "events_ns",
    )  # fmt: skip
    return table_of({name: (single_integer if name in integers else single)(value) for name, value in row.items()})


def _span_ns(*tables: pd.DataFrame) -> int | None:
    held = [table for table in tables if len(table)]
    if not held:
        return None
    return int(
        max(array_of(own, "end_ns").max() for own in held) - min(array_of(own, "start_ns").min() for own in held)
    )


def across(
    parts: Mapping[int, pd.DataFrame],
    hosts: Mapping[int, Placed] | None = None,
    run_hosts: Mapping[int, str] | None = None,
) -> Ranks:
    """The ranks' rows; `hosts` outweigh what the traces say, `run_hosts` stand in where they say nothing."""
    table = stack(parts, tuple(Ranks.columns))
    said = [(hosts or {}).get(rank, Placed()) for rank in table["rank"]]
    known = zip(said, table["host"], table["rank"], strict=True)
    named = [place.host or ((run_hosts or {}).get(rank) if pd.isna(own) else own) for place, own, rank in known]
    text = {"host": named, "rack": [place.rack for place in said]}
    return Ranks(
        table.assign(**{name: pd.Series(held, index=table.index, dtype="object") for name, held in text.items()})
    )
