"""Traces in other tools' formats: these see events, not Results."""

from traceanalyzer.callable_package import call_by_name

call_by_name(__name__, "perfetto")
