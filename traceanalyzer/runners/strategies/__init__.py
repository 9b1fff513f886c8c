"""The strategies by name: one file each."""

from traceanalyzer.runners.strategies.base import Job, Strategy
from traceanalyzer.runners.strategies.broadcast1 import HostToEveryGPU
from traceanalyzer.runners.strategies.broadcast2 import HostToOneThenPeers
from traceanalyzer.runners.strategies.broadcast3 import ChunkedBroadcast
from traceanalyzer.runners.strategies.bucket_ddp_async import BucketDDPAsync
from traceanalyzer.runners.strategies.fsdp_hybrid import FSDPHybrid
from traceanalyzer.runners.strategies.pp_1f1b import OneForwardOneBackward
from traceanalyzer.runners.strategies.pp_gpipe import GPipe
from traceanalyzer.runners.strategies.pp_naive import NaivePipeline
from traceanalyzer.runners.strategies.pytorch_ddp import PyTorchDDP
from traceanalyzer.runners.strategies.pytorch_zero1 import PyTorchZero1
from traceanalyzer.runners.strategies.pytorch_zero2 import PyTorchZero2
from traceanalyzer.runners.strategies.pytorch_zero3 import PyTorchZero3
from traceanalyzer.runners.strategies.simple_ddp import SimpleDDP
from traceanalyzer.runners.strategies.simple_ddp_async import SimpleDDPAsync
from traceanalyzer.runners.strategies.simple_ddp_ga import SimpleDDPGradientAccumulation
from traceanalyzer.runners.strategies.simple_ddp_hook import SimpleDDPHook
from traceanalyzer.runners.strategies.single import Single
from traceanalyzer.runners.strategies.tp import TensorParallel
from traceanalyzer.runners.strategies.zero1 import Zero1
from traceanalyzer.runners.strategies.zero2 import Zero2
from traceanalyzer.runners.strategies.zero3 import Zero3
from traceanalyzer.runners.strategies.zo_offload import ZerothOrderOffload

STRATEGIES: dict[str, type[Strategy]] = {
    "single": Single,
    "simple_ddp": SimpleDDP,
    "simple_ddp_ga": SimpleDDPGradientAccumulation,
    "simple_ddp_hook": SimpleDDPHook,
    "simple_ddp_async": SimpleDDPAsync,
    "bucket_ddp_async": BucketDDPAsync,
    "pytorch_ddp": PyTorchDDP,
    "zero1": Zero1,
    "zero2": Zero2,
    "zero3": Zero3,
    "pytorch_zero1": PyTorchZero1,
    "pytorch_zero2": PyTorchZero2,
    "pytorch_zero3": PyTorchZero3,
    "fsdp_hybrid": FSDPHybrid,
    "pp_naive": NaivePipeline,
    "pp_gpipe": GPipe,
    "pp_1f1b": OneForwardOneBackward,
    "tp": TensorParallel,
    "zo_offload": ZerothOrderOffload,
    "broadcast1": HostToEveryGPU,
    "broadcast2": HostToOneThenPeers,
    "broadcast3": ChunkedBroadcast,
}

__all__ = ["STRATEGIES", "Job", "Strategy"]
