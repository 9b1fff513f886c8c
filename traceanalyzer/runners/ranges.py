"""Named ranges in the trace: `record_function` for the PyTorch profiler, NVTX for Nsight Systems."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.profiler import record_function

try:
    import nvtx
except ModuleNotFoundError:  # torch has NVTX too, but no domains
    nvtx = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class _BlockMarks:
    """Turns a block's input and output into the two ends of its range in the backward pass."""

    def __init__(self, index: int, x: Tensor) -> None:
        self._range = Range(f"backward block_{index}")
        self._has_backward = torch.is_grad_enabled() and x.requires_grad
        self.entered = _CloseInBackward.apply(x, self._range) if self._has_backward else x

    def leave(self, y: Tensor) -> Tensor:
        """The block's output, whose gradient opens the range."""
        return _OpenInBackward.apply(y, self._range) if self._has_backward else y


@contextmanager
def block_range(index: int, x: Tensor) -> Iterator[_BlockMarks]:
    """Range `block_<index>` around a block's forward pass and `backward block_<index>` around its backward."""
    marks = _BlockMarks(index, x)
    with span(f"block_{index}"):
        yield marks


class _OpenInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, backward_range: Range) -> Tensor:
        ctx.backward_range = backward_range
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.backward_range.open()
        return gradients[0], None


class _CloseInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, backward_range: Range) -> Tensor:
        ctx.backward_range = backward_range
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.backward_range.close()
        return gradients[0], None
