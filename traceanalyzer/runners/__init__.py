"""Instrumented training jobs: strategies to run, and `traced` for a training loop of one's own."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.runners.options import ProfileConfig
    from traceanalyzer.runners.train import traced

__all__ = ["ProfileConfig", "traced"]

NEEDS_TORCH = "the runners need PyTorch: in a clone of traceanalyzer, pip install '.[runners]'"


def __getattr__(name: str) -> Any:
    # Not at the top: where torch is missing, the package must import for its command to say so in one line.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from traceanalyzer.runners import train  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(NEEDS_TORCH, name="torch") from None
    return getattr(train, name)
