"""What a kernel's name and its operator tell: category, use of tensor cores, what a compiler fused into it."""

import re
from functools import lru_cache

from traceanalyzer.kinds import MOST_NAMES, speaks_of_communication

CATEGORIES = (
    "gemm", "attention", "convolution", "norm", "softmax", "embedding", "element-wise", "reduction", "optimizer",
    "communication", "copy", "other",
)  # fmt: skip

MATRIX_CATEGORIES = ("gemm", "attention", "convolution")
"""Categories that can use tensor cores, and whose FLOPs are a model's."""


def _words(pattern: str) -> re.Pattern[str]:
    """What is looked for in a name in small letters: of any letters it takes three times as long."""
    return re.compile(pattern.lower())


# In this order: a flash-attention kernel may carry "fprop", a convolution "gemm", a norm "elementwise".
_BY_KERNEL = (
    (
        "attention",
        _words(
            r"flash|fmha|sdpa|attention|attn|compute_dot_do_o|convert_dq_to_16"
            # AOTriton's backward; AITER's paged attention and multi-head latent attention
            r"|^bwd_kernel_(dk_dv|dq|fuse)|^bwd_preprocess|aiter.*(\d|::|_)(pa|mla)_"
        ),
    ),
    (
        "convolution",
        _words(r"conv(?!ert)|[sh\d]cudnn_|[fw]prop|[dw]grad|winograd|im2col|col2im|^igemm_(fwd|bwd|wrw)_|_bwd_weight"),
    ),
    (
        "gemm",
        _words(r"gemm|nvjet|gemv|splitKreduce|Cijk_|matmul|triton_tem_.*mm|wgmma|cublas|aiter.*fmoe|MoeFlatmm"),
    ),
    ("optimizer", _words(r"FusedOptimizer|FusedAdam|FusedSgd|adam|lamb_|lars_")),
    ("norm", _words(r"(layer|rms|batch|group|instance)_?norm|GammaBeta|RowwiseMoments|\bbn_[fb]w")),
    ("softmax", _words(r"soft_?max|nll_loss|cross_entropy|logsumexp")),
    ("embedding", _words(r"embedding|gather_kernel|index|scatter|compute_grad_weight|radix_sort")),
    ("reduction", _words(r"reduce|triton_(per|red)_|cub::.*(Reduce|Scan)")),
    (
        "element-wise",
        _words(
            r"elementwise|copy|CatArray|Fill|dropout|triton_poi_|multi_tensor_apply|transpose|^SubTensorOp|^OpTensor"
        ),
    ),
)

_OF_COMM_TOO = ("reduction", "embedding")
"""Their words are those of collectives, too (all-reduce, gather, scatter), whose kernels no rule may know."""

# What the operator is decides before its kernels' names do.
_BY_OPERATOR = (
    ("attention", _words(r"attention|attn")),
    ("convolution", _words(r"conv(olution)?(\d|_|$)")),
    ("optimizer", _words(r"_fused_(adam|sgd|adagrad)|_foreach_(?!copy|zero|norm)")),
    ("norm", _words(r"(layer|rms|batch|group|instance)_norm")),
    ("softmax", _words(r"softmax|nll_loss|cross_entropy")),
    ("embedding", _words(r"embedding")),
)

_TENSOR_CORES = _words(
    r"nvjet|tensorop|wgmma|gmma|hmma|imma|[a-z]?(16816|1688|884|16832|161616)(gemm|cudnn|_|$)|wmma|flash_(fwd|bwd)|tf32"
    r"|xmma_gemm_(bf16|f16|i8|e4m3|e5m2)|fmha_cutlass[FB]_(bf16|f16)|MFMA|_MI\d+x\d+|xdlops|_xdl_|_gtcx\d?_"
)
_NO_TENSOR_CORES = _words(r"simt|ffma|(?<![\da-z])s?gemv|(^|_)(sgemm|dgemm|scudnn)|_fma_")

_LIST_TYPES = (
    re.compile(r"multi_tensor_apply_kernel<.*?Functor<([\w:]+)(?:, ([a-zA-Z][\w:]*))?[,>]"),
    re.compile(r"chunk_cat_cuda_kernel<(?!char)([\w:]+), ([\w:]+)>"),  # with `char` it moves bytes of any type
    re.compile(r"CatArrayBatchedCopy\w*<(?:at::native::\(anonymous namespace\)::)?([\w:]+(?:<\d+u>)?)()"),
)


@lru_cache(MOST_NAMES)
def category(kernel: str, kind: str, operator: str | None) -> str:
    """One of `CATEGORIES` for the kernels of one name, kind and operator."""
    if kind in ("comm", "copy"):
        return "communication" if kind == "comm" else "copy"
    # A fused kernel is called like its operator: there the kernel's own kind says more.
    if operator and not operator.startswith("triton_"):
        in_small = operator.lower()
        for name, pattern in _BY_OPERATOR:
            if pattern.search(in_small):
                return name
    if kernel.startswith("triton_poi_"):
        return "element-wise"
    in_small = kernel.lower()
    found = next((name for name, pattern in _BY_KERNEL if pattern.search(in_small)), "other")
    return "other" if found in _OF_COMM_TOO and speaks_of_communication(kernel) else found


@lru_cache(MOST_NAMES)
def uses_tensor_cores(kernel: str) -> bool | None:
    """Whether a matrix kernel runs on tensor cores (or AMD's matrix cores); `None` when its name does not say."""
    in_small = kernel.lower()
    if _TENSOR_CORES.search(in_small):
        return True
    return False if _NO_TENSOR_CORES.search(in_small) else None


@lru_cache(MOST_NAMES)
def list_types(kernel: str) -> tuple[str, ...]:
    """Element types of the lists of tensors that a kernel works on: one, or a copy's target and source; none else."""
    found = next((match for pattern in _LIST_TYPES if (match := pattern.search(kernel))), None)
    return tuple(name for name in found.groups() if name) if found else ()
