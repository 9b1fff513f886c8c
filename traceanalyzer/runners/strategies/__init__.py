"""The strategies by name: one file each, imported when it is asked for, so that their names need no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceanalyzer.runners.strategies.base import Strategy

STRATEGIES: dict[str, str] = {
    "single": "single.Single",
    "simple_ddp": "simple_ddp.SimpleDDP",
    "simple_ddp_ga": "simple_ddp_ga.SimpleDDPGradientAccumulation",
    "simple_ddp_hook": "simple_ddp_hook.SimpleDDPHook",
    "simple_ddp_async": "simple_ddp_async.SimpleDDPAsync",
    "bucket_ddp_async": "bucket_ddp_async.BucketDDPAsync",
    "pytorch_ddp": "pytorch_ddp.PyTorchDDP",
    "pytorch_ddp_bf16": "pytorch_ddp_bf16.PyTorchDDPBf16",
    "zero1": "zero1.Zero1",
    "zero2": "zero2.Zero2",
    "zero3": "zero3.Zero3",
    "pytorch_zero1": "pytorch_zero1.PyTorchZero1",
    "pytorch_zero2": "pytorch_zero2.PyTorchZero2",
    "pytorch_zero3": "pytorch_zero3.PyTorchZero3",
    "fsdp_hybrid": "fsdp_hybrid.FSDPHybrid",
    "pp_naive": "pp_naive.NaivePipeline",
    "pp_gpipe": "pp_gpipe.GPipe",
    "pp_1f1b": "pp_1f1b.OneForwardOneBackward",
    "tp": "tp.TensorParallel",
    "zo_offload": "zo_offload.ZerothOrderOffload",
    "broadcast1": "broadcast1.HostToEveryGPU",
    "broadcast2": "broadcast2.HostToOneThenPeers",
    "broadcast3": "broadcast3.ChunkedBroadcast",
}
"""Name → file below this folder and class."""

__all__ = ["STRATEGIES", "strategy_named"]


def strategy_named(name: str) -> type[Strategy]:
    """The strategy's class."""
    module, class_name = STRATEGIES[name].split(".")
    found: type[Strategy] = getattr(import_module(f"{__name__}.{module}"), class_name)
    return found
