"""What advice calls the tools of the job's framework, without those in use already: PyTorch's, an engine's, XLA's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.findings.engine_tools import (
    engine_parts,
    exchanged,
    faster_reduces,
    has_engine,
    inferred_parts,
    infers,
    serves,
)
from traceanalyzer.findings.exchange_tools import exchange_parts
from traceanalyzer.findings.in_use import InUse
from traceanalyzer.findings.programs import is_plain
from traceanalyzer.kinds import EXPERTS


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
        hide_own_comm: the same of kernels that are no library's of collectives (userbuffers, symmetric memory).
        start_early: the same where nothing is hidden.
        join_small: what to do about small collectives.
        speed_small: the same of those that no backward pass or optimizer calls, in a job that has these.
        even_within: how ranks come to wait less for each other within a step.
        wait_less: how hosts come to wait less for what their GPUs compute; empty where the call is to go.
    """

    launch_less: str
    fuse_small: str
    fuse_moving: str
    fusing: str
    hide_comm: Mapping[str, str]
    hide_any_comm: str
    hide_own_comm: str
    start_early: str
    join_small: str
    speed_small: str
    even_within: str
    wait_less: str = ""


_FUSED = "fused norms and activations"


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
    if used.replays:
        graphs = "what is launched between its CUDA graphs within these, too"
    small = (
        'Replay small kernels as a CUDA graph (of those that torch.compile makes: mode="reduce-overhead"), and fuse '
        f"those outside it ({', '.join([*fused, _FUSED])})."
        if used.compiles
        else f"Fuse small kernels ({', '.join(['torch.compile', *fused, _FUSED])}) or replay them as a CUDA graph."
    )
    if used.replays:
        small = f"Most is replayed by CUDA graphs already: fuse what they hold ({', '.join([*fused, _FUSED])})."
    whose = "norms, losses and optimizer (fused=True)" if fused else "norms and losses"
    moving = (
        f'Let torch.compile take more of it (TORCH_LOGS="graph_breaks" says where it stops), fused {whose}'
        if used.compiles
        else f"Fuse them: torch.compile, fused {whose}"
    )
    return Tools(
        ", ".join([graphs, *fused, "a larger batch"]),
        small,
        f"{moving}; keep activations in 16 bits; avoid copies and casts between layouts and types.",
        "; torch.compile has fused some of it already" if used.compiles else ": fusing (torch.compile) may shorten it",
        _HIDE_COMM,
        "Call them with async_op=True and wait where the result is used; join small ones; or call them in fewer steps.",
        "Cut them into more parts, each beside the products of the next one, or have fewer ranks in the group.",
        "Start communication as soon as its data is ready: bucketed gradients during backward, prefetched all-gathers, "
        "asynchronous collectives that are waited for where their result is used.",
        "Put them into buckets of some 25 MB, flatten the tensors, or coalesce the calls: a small collective costs its "
        "latency, whatever it carries. Where the next operation needs each result (scales of 8-bit tensors), take the "
        "values of the step before, or collectives made for small arrays (one-shot, symmetric memory).",
        f"Where what follows needs each result (tensor parallelism, statistics of norms), take {faster_reduces(used)}. "
        "Of those whose results nothing waits for (losses, metrics) make one: flatten the tensors, or coalesce the "
        "calls.",
        "Give all ranks as much between one exchange and the next: microbatches of like lengths on all ranks, each "
        "layer's experts evenly loaded; or exchange less often: no_sync until the last microbatch.",
    )


_HIDE_EXPERTS = (
    "Exchange one half of the tokens or samples while the other half computes, run beside them what needs no exchange "
    "(shared experts, dense layers), send fewer bytes, or keep more of them on one host."
)

_HIDE_ALL_TO_ALLS = (
    "Exchange one half of the tokens, samples or heads while the other half computes, run beside them what needs no "
    "exchange (dense layers; of experts those that all tokens share), send fewer bytes, or exchange within a host."
)

_HIDE_COMM = {
    "optimizer": "Gather what the optimizer updated while something else runs: the rest of the optimizer or the "
    "next forward pass (FSDP gathers layer by layer; ZeroRedundancyOptimizer: overlap_with_ddp).",
    "forward": "Start them earlier (prefetch the next layer's parameters), run them beside independent work (async "
    "tensor parallelism), or have fewer ranks in the group.",
    "backward": "Start them as soon as their gradients are there (DDP's buckets, FSDP).",
    "all_to_all": _HIDE_ALL_TO_ALLS,
    **dict.fromkeys(EXPERTS, _HIDE_EXPERTS),
}

TORCH = _torch(InUse())

_HIDES = "Start them before work that does not need their result, on a stream of its own, and wait where it is used."

_JOINS = (
    "Join small ones, or take such as are made for small arrays (one kernel over memory that GPUs share): a small "
    "collective costs its latency, whatever it carries."
)

ANY = Tools(
    "CUDA graphs for the repeated part, kernels that do more each",
    "Fuse small kernels, or replay them as a CUDA graph.",
    "Fuse them, so that data is read and written once; use fewer bytes where precision allows.",
    ": fusing may shorten it",
    {},
    _HIDES,
    _HIDES,
    _HIDES,
    _JOINS,
    _JOINS,
    "Give all ranks as much between one exchange and the next, or exchange less often.",
)
"""Those of programs of which no framework is known."""

_XLA_HIDES = (
    "Let XLA run them beside computing: --xla_gpu_enable_latency_hiding_scheduler=true with measured times "
    "(JAX_ENABLE_PGLE=true)."
)

_XLA_JOINS = (
    "Let XLA join them (--xla_gpu_all_reduce_combine_threshold_bytes and the like), or shard fewer dimensions: a small "
    "collective costs its latency, whatever it carries."
)

XLA = Tools(
    "one jax.jit around the whole step, several steps in one jax.lax.scan, no block_until_ready() or float() between "
    "steps, a larger batch",
    "Put more of the step into one jax.jit, so that XLA fuses it; let XLA replay it as command buffers "
    "(--xla_gpu_enable_command_buffer).",
    "Put more of the step into one jax.jit, so that XLA fuses it; keep activations in 16 bits; avoid transposes and "
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
    _XLA_HIDES,
    _XLA_HIDES,
    _XLA_HIDES,
    _XLA_JOINS,
    _XLA_JOINS,
    "Give all ranks as much between one exchange and the next: arrays sharded evenly, each layer's experts evenly "
    "loaded; or exchange less often: gradients summed over microbatches before they are reduced.",
)


def tools_of(
    ranks: Result | None,
    kernels: Result | None = None,
    iterations: Iterations | None = None,
    phases: Result | None = None,
    operators: Result | None = None,
    launches: Result | None = None,
) -> Tools:
    """Those of the framework that the traces are of: XLA's where each is JAX's, or says that XLA compiled it.

    Of programs of which the profiler knows none, and no kernel is a framework's: of none.

    With the job's kernels and phases PyTorch's without those that these show in use, or of no use. Where steps are
    iterations of an engine that serves: its own; where only kernels are, its own of communication. Of communication
    those of Horovod where kernels or operators are its own, and of no library where operators show that it is not
    torch.distributed's; where nothing is trained nothing of gradients.
    """
    if ranks is None or not len(ranks):
        return TORCH
    is_xla = ranks.table["format"] == "xplane"
    if "versions" in ranks.table:
        is_xla |= ranks.table["versions"].astype("object").fillna("").str.contains("compiler XLA", regex=False)
    if is_xla.all():
        return XLA
    if is_plain(ranks, kernels, operators):
        return ANY
    used = InUse.of(kernels, phases, launches)
    torch = _torch(used)
    if iterations is None or not serves(iterations):
        if has_engine(kernels, operators):
            calls: dict[str, Any] = exchanged(used, None)
        else:
            calls = exchange_parts(kernels, operators)
        if not calls and infers(operators):
            calls = inferred_parts(used, torch.speed_small)
        return replace(torch, **calls)
    parts: dict[str, Any] = engine_parts(used, iterations)
    return replace(torch, **parts)


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
