"""The strategies by name: a module a family, imported when it is asked for, so that their names need no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceanalyzer.runners.strategies.base import Strategy

STRATEGIES: dict[str, str] = {
    "single": "data_parallel.Single",
    "simple_ddp": "data_parallel.SimpleDDP",
    "simple_ddp_ga": "data_parallel.SimpleDDPGradientAccumulation",
    "simple_ddp_hook": "data_parallel.SimpleDDPHook",
    "simple_ddp_async": "data_parallel.SimpleDDPAsync",
    "bucket_ddp_async": "data_parallel.BucketDDPAsync",
    "pytorch_ddp": "pytorch.PyTorchDDP",
    "pytorch_ddp_bf16": "pytorch.PyTorchDDPBf16",
    "pytorch_ddp_fp16": "pytorch.PyTorchDDPFp16",
    "pytorch_ddp_powersgd": "pytorch.PyTorchDDPPowerSGD",
    "zero1": "zero.Zero1",
    "zero2": "zero.Zero2",
    "zero3": "zero.Zero3",
    "pytorch_zero1": "pytorch.PyTorchZero1",
    "pytorch_zero2": "pytorch.PyTorchZero2",
    "pytorch_zero3": "pytorch.PyTorchZero3",
    "deepspeed_zero1": "deepspeed_zero.DeepSpeedZero1",
    "deepspeed_zero2": "deepspeed_zero.DeepSpeedZero2",
    "deepspeed_zero3": "deepspeed_zero.DeepSpeedZero3",
    "fsdp_hybrid": "pytorch.FSDPHybrid",
    "pp_naive": "pipeline.NaivePipeline",
    "pp_gpipe": "pipeline.GPipe",
    "pp_1f1b": "pipeline.OneForwardOneBackward",
    "tp": "tp.TensorParallel",
    "zo_offload": "zo_offload.ZerothOrderOffload",
    "broadcast1": "broadcast.HostToEveryGPU",
    "broadcast2": "broadcast.HostToOneThenPeers",
    "broadcast3": "broadcast.ChunkedBroadcast",
}
"""Name → module in this folder and class."""

__all__ = ["STRATEGIES", "strategy_named"]


def strategy_named(name: str) -> type[Strategy]:
    """The strategy's class."""
    module, class_name = STRATEGIES[name].split(".")
    found: type[Strategy] = getattr(import_module(f"{__name__}.{module}"), class_name)
    return found
