"""Packages that can be called like their main function: `ta.report(traces)` and `traceanalyzer.report.WRITERS`."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def call_by_name(package: str, module: str) -> None:
    """Make a call of the package call the function of the same name in one of its modules.

    The module is imported at the first call.
    """

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **named: Any) -> Any:
            function = getattr(import_module(f"{package}.{module}"), package.rpartition(".")[2])
            return function(*arguments, **named)

    sys.modules[package].__class__ = CallablePackage
