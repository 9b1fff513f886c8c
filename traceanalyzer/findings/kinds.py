"""Every kind of finding: a function of the run and of the Results that it names, which yields what it detects.

A kind is one module; its function's name is the kind's id, its docstring the definition that the docs print.
"""

from collections.abc import Callable, Iterable

from traceanalyzer.findings import data_loading
from traceanalyzer.findings.finding import Finding

KINDS: tuple[Callable[..., Iterable[Finding]], ...] = (data_loading.data_loading,)
