"""Packages that are called as their main function is: `ta.report(traces)` beside `traceanalyzer.report.WRITERS`."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def call_by_name(package: str, module: str) -> None:
    """Make the package callable: the call is that of the function called as it is, in one of its modules.

    The module is imported when it is called first.
    """

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **named: Any) -> Any:
            function = getattr(import_module(f"{package}.{module}"), package.rpartition(".")[2])
            return function(*arguments, **named)

    sys.modules[package].__class__ = CallablePackage
