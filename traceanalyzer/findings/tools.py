"""What advice calls the tools of the job's framework: PyTorch's, or XLA's where the trace is JAX's."""

from collections.abc import Mapping
from dataclasses import dataclass

from traceanalyzer.analyses import Result


@dataclass(frozen=True, slots=True)
class Tools:
    """Parts of sentences.

    Attributes:
        launch_less: how a host launches less.
        fuse_small: what to do about small kernels.
        fuse_moving: what to do about kernels that move data and compute little.
        fusing: what may shorten them.
        hide_comm: how communication of a phase comes to run beside computing.
        hide_any_comm: the same where it is of no phase.
    """

    launch_less: str
    fuse_small: str
    fuse_moving: str
    fusing: str
    hide_comm: Mapping[str, str]
    hide_any_comm: str


TORCH = Tools(
    "torch.compile or CUDA graphs for the repeated part, fused optimizers, a larger batch",
    "Fuse small kernels (torch.compile, fused or foreach optimizers, fused norms and activations) or replay them as a "
    "CUDA graph.",
    "Fuse them: torch.compile, fused norms, losses and optimizers; keep activations in bfloat16; avoid copies and "
    "casts between layouts and types.",
    "fusing (torch.compile)",
    {
        "optimizer": "Gather what the optimizer updated while something else runs: the rest of the optimizer or the "
        "next forward pass (FSDP gathers layer by layer; ZeroRedundancyOptimizer: overlap_with_ddp).",
        "forward": "Start them earlier (prefetch the next layer's parameters), run them beside independent work (async "
        "tensor parallelism), or have fewer ranks in the group.",
        "backward": "Start them as soon as their gradients are there (DDP's buckets, FSDP).",
    },
    "Call them with async_op=True and wait where the result is used; join small ones; or call them in fewer steps.",
)

XLA = Tools(
    "one jax.jit around the whole step, several steps in one jax.lax.scan, no block_until_ready() or float() between "
    "steps, a larger batch",
    "Put more of the step into one jax.jit, so that XLA fuses it; let XLA replay it as command buffers "
    "(--xla_gpu_enable_command_buffer).",
    "Put more of the step into one jax.jit, so that XLA fuses it; keep activations in bfloat16; avoid transposes and "
    "casts between layouts and types.",
    "more of it in one jax.jit",
    {
        "forward": "Let XLA start them earlier, beside independent work: "
        "--xla_gpu_enable_latency_hiding_scheduler=true with measured times "
        "(JAX_ENABLE_PGLE=true); or split the arrays over fewer devices.",
        "backward": "Let XLA start them as soon as their gradients are there: "
        "--xla_gpu_enable_latency_hiding_scheduler=true with measured times (JAX_ENABLE_PGLE=true), and thresholds "
        "that do not join them all (--xla_gpu_all_reduce_combine_threshold_bytes and the like).",
    },
    "Let XLA run them beside computing: --xla_gpu_enable_latency_hiding_scheduler=true with measured times "
    "(JAX_ENABLE_PGLE=true).",
)


def tools_of(ranks: Result | None) -> Tools:
    """Those of the framework that the traces are of: XLA's where each is JAX's, or says that XLA compiled it."""
    if ranks is None or not len(ranks):
        return TORCH
    is_xla = ranks.table["format"] == "xplane"
    if "versions" in ranks.table:
        is_xla |= ranks.table["versions"].astype("object").fillna("").str.contains("compiler XLA", regex=False)
    return XLA if is_xla.all() else TORCH


def data_parallel_advice(operators: Result, ranks: Result) -> str:
    """What to use instead where one process drives all GPUs by `nn.DataParallel`; empty where it does not."""
    if len(ranks) < 2 or not len(operators):
        return ""
    names = operators.table["operator"].astype("object").unique()
    if not {*_DATA_PARALLEL} <= {*names}:
        return ""
    return (
        "nn.DataParallel copies the parameters to every GPU in each step, and its threads take turns at Python: use "
        "DistributedDataParallel, with a process for each GPU. "
    )


_DATA_PARALLEL = ("Scatter", "Broadcast", "Gather")
"""Autograd functions that it alone records, all three."""
