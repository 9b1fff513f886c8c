"""What a trace is once it is read, and how a reader makes one."""

from traceanalyzer.model.make import launch_rows, make_trace, trace_of
from traceanalyzer.model.trace import ProcessGroup, RankMeta, RankTrace, Skipped, TraceSet, Window, whole_capture

__all__ = [
    "ProcessGroup",
    "RankMeta",
    "RankTrace",
    "Skipped",
    "TraceSet",
    "Window",
    "launch_rows",
    "make_trace",
    "trace_of",
    "whole_capture",
]
