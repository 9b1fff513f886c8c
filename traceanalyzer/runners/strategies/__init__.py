"""The strategies by name: a module a family, imported when it is asked for, so that their names need no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceanalyzer.runners.strategies.base import Strategy

STRATEGIES: dict[str, str] = {
    "single": "by_hand.Single",
    "simple_ddp": "by_hand.SimpleDDP",
    "simple_ddp_ga": "by_hand.SimpleDDPGradientAccumulation",
    "simple_ddp_hook": "by_hand.SimpleDDPHook",
    "simple_ddp_async": "by_hand.SimpleDDPAsync",
    "bucket_ddp_async": "by_hand.BucketDDPAsync",
    "pytorch_ddp": "pytorch.PyTorchDDP",
    "pytorch_ddp_bf16": "pytorch.PyTorchDDPBf16",
    "pytorch_ddp_fp16": "pytorch.PyTorchDDPFp16",
    "pytorch_ddp_powersgd": "pytorch.PyTorchDDPPowerSGD",
    "zero1": "by_hand.Zero1",
    "zero2": "by_hand.Zero2",
    "zero3": "by_hand.Zero3",
    "pytorch_zero1": "pytorch.PyTorchZero1",
    "pytorch_zero2": "pytorch.PyTorchZero2",
    "pytorch_zero3": "pytorch.PyTorchZero3",
    "deepspeed_zero1": "pytorch.DeepSpeedZero1",
    "deepspeed_zero2": "pytorch.DeepSpeedZero2",
    "deepspeed_zero3": "pytorch.DeepSpeedZero3",
    "fsdp_hybrid": "pytorch.FSDPHybrid",
    "pp_naive": "model_parallel.NaivePipeline",
    "pp_gpipe": "model_parallel.GPipe",
    "pp_1f1b": "model_parallel.OneForwardOneBackward",
    "tp": "model_parallel.TensorParallel",
    "zo_offload": "streams.ZerothOrderOffload",
    "broadcast1": "streams.HostToEveryGPU",
    "broadcast2": "streams.HostToOneThenPeers",
    "broadcast3": "streams.ChunkedBroadcast",
}
"""Name → module in this folder and class."""

__all__ = ["STRATEGIES", "strategy_named"]


def strategy_named(name: str) -> type[Strategy]:
    """The strategy's class."""
    module, class_name = STRATEGIES[name].split(".")
    found: type[Strategy] = getattr(import_module(f"{__name__}.{module}"), class_name)
    return found
