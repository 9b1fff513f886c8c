"""What of PyTorch's and the engines' tools a job's kernels show: what is in use already is not advised."""

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import Result


class InUse(Struct, frozen=True):
    """What of PyTorch's tools the job's kernels show; a name that nobody knows shows nothing."""

    compiles: bool = False
    updates_by_parts: bool = False
    """An optimizer whose every operation is a kernel (foreach), none in which all of them are one (fused)."""
    updates_singly: bool = False
    """An optimizer that runs kernels of its own for each parameter (neither foreach nor fused)."""
    reduces_small: bool = False
    """All-reduces that are made for small arrays."""
    reduces_fused: bool = False
    """All-reduces with what follows them in one kernel."""
    replays: bool = False
    """CUDA graphs, by which most operations are launched."""

    @classmethod
    def of(cls, kernels: Result | None, phases: Result | None = None, launches: Result | None = None) -> "InUse":
        """By the names of Inductor's kernels, of those that update parameters, and of those that reduce them.

        What Adam does to one parameter has a name of its own; what others do, as stochastic gradient descent, adds and
        multiplies as anything does: that is told by how many operations the optimizer has.
        """
        if kernels is None or not len(kernels):
            return cls(replays=_by_graphs(launches))
        names = kernels.table["name"].astype("str")
        is_fused = _any(names, _OF_FUSED)
        calls = [kernels.table.loc[names.str.contains(each, regex=False), "calls"].max() for each in _OF_ONE]
        by_parts = _any(names, _OF_PARTS) and not is_fused
        is_single = all(count >= _MANY for count in calls) or (not by_parts and _takes_many(phases))
        return cls(
            compiles=_any(names, _OF_INDUCTOR),
            updates_by_parts=by_parts,
            updates_singly=is_single and not is_fused,
            reduces_small=_any(names, _OF_SMALL_REDUCES),
            reduces_fused=_any(names, _OF_FUSED_REDUCES),
            replays=_by_graphs(launches),
        )


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
_OF_FUSED_REDUCES = r"all_?reduce_(?:fusion|norm|rmsnorm|mhc)|(?i:allreduceFusion)|rmsNormLamport"
_OF_SMALL_REDUCES = rf"cross_device_reduce|(?i:one_?shot)|multimem_|{_OF_FUSED_REDUCES}"
"""vLLM's own, PyTorch's, SGLang's, FlashInfer's and TensorRT-LLM's."""


def _takes_many(phases: Result | None) -> bool:
    """Whether the optimizer runs so many operations in a step that it takes parameters one by one, and short ones."""
    if phases is None or not len(phases):
        return False
    table = phases.table
    own = table[(table["phase"] == "optimizer") & table["step"].notna()]
    count, compute_ns = int(own["operations"].sum()), int(own["compute_ns"].fillna(0).sum())
    return count >= _MANY_A_STEP * len(own) > 0 and compute_ns < _SHORT_NS * count


def _by_graphs(launches: Result | None) -> bool:
    """Whether graphs launch half of all ranks' operations and more."""
    if launches is None or not len(launches):
        return False
    return bool(2 * launches.table["graph_operations"].fillna(0).sum() >= launches.table["operations"].sum() > 0)


def _any(names: pd.Series, pattern: str) -> bool:
    return bool(names.str.contains(pattern).any())
