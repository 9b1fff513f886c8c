"""Traces in memory as one file for Perfetto."""

from os import PathLike
from pathlib import Path

from traceanalyzer.export import perfetto
from traceanalyzer.functions import analyse
from traceanalyzer.given import place_of
from traceanalyzer.model import TraceSet


def export(traces: TraceSet, path: str | PathLike[str]) -> Path:
    """Write all ranks as one file for ui.perfetto.dev, as `analyze-traces export` does; returns its path.

    It is Chrome's JSON when the name ends in `.json` or `.json.gz`, else Perfetto's protobuf, compressed when the name
    ends in `.gz`.

    Raises:
        UsageError: `traces` are not loaded.
    """
    target = place_of(path, "export takes the path of a file")
    results = analyse(traces, *perfetto.NEEDED)
    perfetto.write(results, target, traces.label, perfetto.in_memory(traces.ranks))
    return target
