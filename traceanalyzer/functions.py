"""Each analysis as a function of traces in memory: what `traceanalyzer.breakdown` and its like are."""

import inspect
from collections.abc import Callable
from functools import cache
from textwrap import fill
from typing import Any, cast

from traceanalyzer.analyses import ANALYSES, Result, Results, run, thresholds_of
from traceanalyzer.analyses.engine import no_such_analysis
from traceanalyzer.analyses.replay.changes import Change, read_change
from traceanalyzer.errors import UsageError
from traceanalyzer.findings.what_if import Answer, answer, needed
from traceanalyzer.job.run_info import KEY
from traceanalyzer.model import TraceSet
from traceanalyzer.model.tables import pandas_set_up
from traceanalyzer.validation import shown


def analyse(traces: TraceSet, *names: str, **thresholds: Any) -> Results:
    """The named analyses of traces in memory, or all of them; `thresholds` are passed by parameter name.

    Raises:
        UsageError: an analysis or a threshold is unknown, or `traces` are not loaded.
    """
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"analyse takes names of analyses one by one: not {shown(name)}")
        if name not in ANALYSES:
            raise UsageError(no_such_analysis(name))
    wanted = names or tuple(ANALYSES)
    step_ns = loaded(traces).unprofiled_step_ns
    if step_ns is not None and KEY in thresholds_of(wanted):
        thresholds = {KEY: step_ns, **thresholds}
    return run(traces.ranks, wanted, **thresholds)


def loaded(traces: TraceSet) -> TraceSet:
    """The traces themselves.

    Raises:
        UsageError: they are something else, such as the path of their folder.
    """
    if not isinstance(traces, TraceSet):
        raise UsageError(f"not traces in memory: {shown(traces)}; read them first, traces = traceanalyzer.load(folder)")
    return traces


@pandas_set_up()
def what_if(traces: TraceSet, *changes: Change | str) -> Answer:
    """How long a step takes in the job replayed with the changes, made together.

        ta.what_if(traces, "rank 7=peers")
        ta.what_if(traces, "cpu none", "operator aten::mm=2x")

    A text is a part of the job, what it is of (ranks, or a name) where that is needed, and what becomes of it, as on
    the command line.

    Raises:
        UsageError: a change makes no sense.
        InputError: the job cannot be replayed.
    """
    asked = [read_change(change) if isinstance(change, str) else change for change in changes]
    for change in asked:
        if not isinstance(change, Change):
            raise UsageError(f"what_if takes changes one by one, such as 'rank 7=peers': not {shown(change)}")
    return answer(analyse(traces, *needed(asked)), asked)


@cache
def function_of(name: str) -> Callable[..., Result]:
    """The analysis as a function `name(traces, *, thresholds)`, with its Result's definition as its docstring."""

    def function(traces: TraceSet, **thresholds: Any) -> Result:
        return analyse(traces, name, **thresholds)[name]

    gives: type[Result] = ANALYSES[name].result
    thresholds = thresholds_of([name])
    function.__name__ = function.__qualname__ = name
    function.__module__ = "traceanalyzer"
    function.__doc__ = _docstring(gives, thresholds)
    parameters = [
        inspect.Parameter("traces", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=TraceSet),
        *(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=value) for key, value in thresholds.items()),
    ]
    cast("Any", function).__signature__ = inspect.Signature(parameters, return_annotation=gives)
    return function


def _docstring(gives: type[Result], thresholds: dict[str, Any]) -> str:
    columns = [_line(name, column.definition) for name, column in gives.columns.items()]
    defaults = [_line(key, f"{value!r} unless given.") for key, value in thresholds.items()]
    parts = [gives.meaning(), "\n".join(["Columns:", *columns])]
    return "\n\n".join([*parts, "\n".join(["Thresholds:", *defaults])] if defaults else parts)


def _line(name: str, text: str) -> str:
    return fill(f"{name}: {text}", 100, initial_indent=" " * 4, subsequent_indent=" " * 8)
