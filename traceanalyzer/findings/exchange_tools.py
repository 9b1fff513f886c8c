"""What advice on communication calls the tools of the library that makes them, where it is not torch.distributed."""

import pandas as pd

from traceanalyzer.analyses import Result

_HOROVOD = r"\bhorovod::|\bHorovod(?:Grouped)?(?:Allreduce|Allgather|Broadcast|Alltoall|Reducescatter)"
"""Kernels that fill its fusion buffers, and its functions that autograd records."""

_TORCH = r"^(?:c10d::|_?c10d_functional::|record_param_comms$|nccl:)"
"""What torch.distributed records of each call of its own."""

_SOONER = "Horovod exchanges a gradient once all ranks have it, and what is ready within a cycle as one: "

_HOROVOD_HIDES = (
    f"{_SOONER}a smaller HOROVOD_FUSION_THRESHOLD lets the first exchange begin sooner and leaves less for the last; "
    "send half of the bytes (compression=hvd.Compression.fp16), or exchange in fewer steps "
    "(backward_passes_per_step)."
)

_OTHER_HIDES = (
    "Start them before work that does not need their result and wait where it is used; join small ones; or call them "
    "in fewer steps."
)


def exchange_parts(kernels: Result | None, operators: Result | None) -> dict[str, object]:
    """The fields of `Tools` that are not torch.distributed's; none where that makes the calls, or nobody can tell."""
    if _any(kernels, "name", _HOROVOD) or _any(operators, "operator", _HOROVOD):
        joined = (
            f"{_SOONER}raise HOROVOD_CYCLE_TIME, or let it exchange gradients in groups (num_groups): a small "
            "collective costs its latency, whatever it carries."
        )
        return {
            "hide_comm": {"backward": _HOROVOD_HIDES},
            "hide_any_comm": _HOROVOD_HIDES,
            "start_early": _HOROVOD_HIDES,
            "join_small": joined,
            "speed_small": joined,
        }
    if operators is None or not len(operators) or _any(operators, "operator", _TORCH):
        return {}
    return {"hide_any_comm": _OTHER_HIDES}


def _any(table: Result | None, column: str, pattern: str) -> bool:
    if table is None or not len(table):
        return False
    names = pd.Series(table.table[column].dropna().astype("object").unique(), dtype="str")
    return bool(names.str.contains(pattern).any())
