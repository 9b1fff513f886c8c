"""Named ranges in the trace: `record_function` for the PyTorch profiler, NVTX for Nsight Systems."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.autograd.profiler import record_function

try:
    import nvtx
except ModuleNotFoundError:  # torch has NVTX too, but no domains
    nvtx = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

# Tells the ranges of a training job from those of NCCL and other libraries in the same report.
NVTX_DOMAIN = "traceanalyzer"
_uses_nvtx = False


def use_nvtx(*, is_on: bool) -> None:
    """Write ranges as NVTX (one process has one profiler, so this is process-wide)."""
    global _uses_nvtx  # noqa: PLW0603
    _uses_nvtx = is_on


class Range:
    """A range that code far apart opens and closes, on one thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._record: record_function | None = None

    def open(self) -> None:
        """Start the range."""
        if _uses_nvtx:
            _push_nvtx(self.name)
        else:
            self._record = record_function(self.name)
            self._record.__enter__()

    def close(self) -> None:
        """End the range."""
        if self._record is not None:
            self._record.__exit__(None, None, None)
        elif _uses_nvtx:
            _pop_nvtx()


def _push_nvtx(name: str) -> None:
    if nvtx is None:
        torch.cuda.nvtx.range_push(name)
    else:
        nvtx.push_range(name, domain=NVTX_DOMAIN)


def _pop_nvtx() -> None:
    if nvtx is None:
        torch.cuda.nvtx.range_pop()
    else:
        nvtx.pop_range(domain=NVTX_DOMAIN)


@contextmanager
def span(name: str) -> Iterator[None]:
    """A range around a block of code: `data`, `forward`, `backward`, `grad_sync`, `optimizer`, `block_<i>`."""
    opened = Range(name)
    opened.open()
    try:
        yield
    finally:
        opened.close()


def in_block_ranges(index: int, block: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`block(x)` in the range `block_<index>`, and its backward pass in `backward block_<index>`."""
    backward = Range(f"backward block_{index}")
    has_backward = torch.is_grad_enabled() and x.requires_grad
    if has_backward:
        x.register_hook(lambda _: backward.close())
    with span(f"block_{index}"):
        y = block(x)
    if has_backward:
        # Hooks of a function's node run after those of its tensor, with which the following block's range closes.
        assert y.grad_fn is not None
        y.grad_fn.register_prehook(lambda _: backward.open())
    return y
