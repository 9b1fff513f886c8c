"""Instrumented training jobs: strategies to run, and `traced` for a training loop of one's own."""

try:
    import torch as _torch  # noqa: F401  # only to say what is missing
except ModuleNotFoundError as _error:
    _MESSAGE = "the runners need PyTorch: in the clone of traceanalyzer, pip install '.[runners]'"
    raise ModuleNotFoundError(_MESSAGE, name="torch") from _error

from traceanalyzer.runners.profiling import ProfileConfig
from traceanalyzer.runners.tracing import traced

__all__ = ["ProfileConfig", "traced"]
