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

    @classmethod
    def of(cls, kernels: Result | None) -> "InUse":
        """By the names of Inductor's kernels, of those that update parameters, and of those that reduce them."""
        if kernels is None or not len(kernels):
            return cls()
        names = kernels.table["name"].astype("str")
        is_fused = _any(names, _OF_FUSED)
        calls = [kernels.table.loc[names.str.contains(each, regex=False), "calls"].max() for each in _OF_ONE]
        is_single = not is_fused and all(count >= _MANY for count in calls)
        return cls(
            compiles=_any(names, _OF_INDUCTOR),
            updates_by_parts=_any(names, _OF_PARTS) and not is_fused,
            updates_singly=is_single,
            reduces_small=_any(names, _OF_SMALL_REDUCES),
            reduces_fused=_any(names, _OF_FUSED_REDUCES),
        )


_OF_INDUCTOR = r"triton_(?:poi|red|per|tem|for|spl|mix)_fused"
_OF_PARTS = r"multi_tensor_apply_kernel<.*\b(?:PointwiseOp\w*|BinaryOpListAlpha)Functor"
"""What Adam, and what stochastic gradient descent, do to lists of tensors."""
_OF_ONE = ("::addcmul_cuda_kernel(", "::addcdiv_cuda_kernel(")
"""What Adam does to one parameter, and hardly anything else."""
_MANY = 50
"""Calls of each on a rank: a few parameters updated one by one cost nothing."""
_OF_FUSED = r"Fused(?:Adam|Sgd|Adagrad)|multi_tensor_apply_kernel<.*\bAdamFunctor"
"""PyTorch's with fused=True; Apex's and Transformer Engine's."""
_OF_FUSED_REDUCES = r"all_?reduce_(?:fusion|norm|rmsnorm|mhc)|(?i:allreduceFusion)|rmsNormLamport"
_OF_SMALL_REDUCES = rf"cross_device_reduce|(?i:one_?shot)|multimem_|{_OF_FUSED_REDUCES}"
"""vLLM's own, PyTorch's, SGLang's, FlashInfer's and TensorRT-LLM's."""


def _any(names: pd.Series, pattern: str) -> bool:
    return bool(names.str.contains(pattern).any())
