"""What advice calls the tools of the job's framework, without those in use already: PyTorch's, or XLA's for JAX."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import Result


@dataclass(frozen=True, slots=True)
class Tools:
    """Parts of sentences.

    Attributes:
        launch_less: how a host launches less.
        fuse_small: what to do about small kernels.
        fuse_moving: what to do about kernels that move data and compute little.
        fusing: what is said of kernels that fusing may shorten.
        hide_comm: how communication comes to run beside computing: a collective's, or that of a phase.
        hide_any_comm: the same of another collective where it is of no phase.
    """

    launch_less: str
    fuse_small: str
    fuse_moving: str
    fusing: str
    hide_comm: Mapping[str, str]
    hide_any_comm: str


class InUse(Struct, frozen=True):
    """What of PyTorch's tools the job's kernels show; a name that nobody knows shows nothing."""

    compiles: bool = False
    updates_by_parts: bool = False
    """An optimizer whose every operation is a kernel (foreach), none in which all of them are one (fused)."""
    updates_singly: bool = False
    """An optimizer that runs kernels of its own for each parameter (neither foreach nor fused)."""

    @classmethod
    def of(cls, kernels: Result | None, phases: Result | None = None) -> "InUse":
        """By the names of Inductor's kernels, and of those that update parameters; and by how many of these there are.

        What Adam does to one parameter has a name of its own; what others do, as stochastic gradient descent, adds and
        multiplies as anything does.
        """
        if kernels is None or not len(kernels):
            return cls()
        names = kernels.table["name"].astype("str")
        is_fused = _any(names, _OF_FUSED)
        calls = [kernels.table.loc[names.str.contains(each, regex=False), "calls"].max() for each in _OF_ONE]
        by_parts = _any(names, _OF_PARTS) and not is_fused
        is_single = all(count >= _MANY for count in calls) or (not by_parts and _takes_many(phases))
        return cls(_any(names, _OF_INDUCTOR), by_parts, is_single and not is_fused)


_OF_INDUCTOR = r"triton_(?:poi|red|per|tem|for|spl|mix)_fused"
_OF_PARTS = r"multi_tensor_apply_kernel<.*\b(?:PointwiseOp\w*|BinaryOpListAlpha)Functor"
"""What Adam, and what stochastic gradient descent, do to lists of tensors."""
_OF_ONE = ("::addcmul_cuda_kernel(", "::addcdiv_cuda_kernel(")
"""What Adam does to one parameter, and hardly anything else."""
_MANY = 50
"""Calls of each on a rank: a few parameters updated one by one cost nothing."""
_MANY_A_STEP = 100
"""The same of the optimizer's operations in a step, of whatever name: lists of tensors make some tens."""
_SHORT_NS = 50_000
"""Longer ones are of large parameters, or multiply matrices: there is nothing to win by joining them."""
_OF_FUSED = r"Fused(?:Adam|Sgd|Adagrad)|multi_tensor_apply_kernel<.*\bAdamFunctor"
"""PyTorch's with fused=True; Apex's and Transformer Engine's."""


def _takes_many(phases: Result | None) -> bool:
    """Whether the optimizer runs so many operations in a step that it takes parameters one by one, and short ones."""
    if phases is None or not len(phases):
        return False
    table = phases.table
    own = table[(table["phase"] == "optimizer") & table["step"].notna()]
    count, compute_ns = int(own["operations"].sum()), int(own["compute_ns"].fillna(0).sum())
    return count >= _MANY_A_STEP * len(own) > 0 and compute_ns < _SHORT_NS * count


def _any(names: pd.Series, pattern: str) -> bool:
    return bool(names.str.contains(pattern).any())


def _torch(used: InUse) -> Tools:
    fused = ["a fused optimizer (fused=True)"] if used.updates_by_parts else []
    fused = (
        ["an optimizer that updates all parameters at once (fused=True, foreach=True)"]
        if used.updates_singly
        else fused
    )
    graphs = (
        'CUDA graphs for the repeated part (of what torch.compile makes: mode="reduce-overhead")'
        if used.compiles
        else "torch.compile or CUDA graphs for the repeated part"
    )
    small = (
        'Replay small kernels as a CUDA graph (of those that torch.compile makes: mode="reduce-overhead"), and fuse '
        f"those outside it ({', '.join([*fused, 'fused norms and activations'])})."
        if used.compiles
        else f"Fuse small kernels ({', '.join(['torch.compile', *fused, 'fused norms and activations'])}) or replay "
        "them as a CUDA graph."
    )
    whose = "norms, losses and optimizer (fused=True)" if fused else "norms and losses"
    moving = (
        f'Let torch.compile take more of it (TORCH_LOGS="graph_breaks" says where it stops), fused {whose}'
        if used.compiles
        else f"Fuse them: torch.compile, fused {whose}"
    )
    return Tools(
        ", ".join([graphs, *fused, "a larger batch"]),
        small,
        f"{moving}; keep activations in bfloat16; avoid copies and casts between layouts and types.",
        "; torch.compile has fused some of it already" if used.compiles else ": fusing (torch.compile) may shorten it",
        _HIDE_COMM,
        "Call them with async_op=True and wait where the result is used; join small ones; or call them in fewer steps.",
    )


_HIDE_COMM = {
    "optimizer": "Gather what the optimizer updated while something else runs: the rest of the optimizer or the "
    "next forward pass (FSDP gathers layer by layer; ZeroRedundancyOptimizer: overlap_with_ddp).",
    "forward": "Start them earlier (prefetch the next layer's parameters), run them beside independent work (async "
    "tensor parallelism), or have fewer ranks in the group.",
    "backward": "Start them as soon as their gradients are there (DDP's buckets, FSDP).",
    "all_to_all": "Exchange one half of the tokens or samples while the other half computes, run beside them what "
    "needs no exchange (shared experts, dense layers), send fewer bytes, or keep more of them on one host.",
}

TORCH = _torch(InUse())

XLA = Tools(
    "one jax.jit around the whole step, several steps in one jax.lax.scan, no block_until_ready() or float() between "
    "steps, a larger batch",
    "Put more of the step into one jax.jit, so that XLA fuses it; let XLA replay it as command buffers "
    "(--xla_gpu_enable_command_buffer).",
    "Put more of the step into one jax.jit, so that XLA fuses it; keep activations in bfloat16; avoid transposes and "
    "casts between layouts and types.",
    ": more of it in one jax.jit may shorten it",
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


def tools_of(ranks: Result | None, kernels: Result | None = None, phases: Result | None = None) -> Tools:
    """Those of the framework that the traces are of: XLA's where each is JAX's, or says that XLA compiled it.

    With the job's kernels and phases PyTorch's without those that these show in use, or of no use.
    """
    if ranks is None or not len(ranks):
        return TORCH
    is_xla = ranks.table["format"] == "xplane"
    if "versions" in ranks.table:
        is_xla |= ranks.table["versions"].astype("object").fillna("").str.contains("compiler XLA", regex=False)
    return XLA if is_xla.all() else _torch(InUse.of(kernels, phases))


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
