"""What a kernel's name and its operator tell: category, use of tensor cores, what a compiler fused into it."""

import re
from functools import lru_cache

CATEGORIES = (
    "gemm", "attention", "convolution", "norm", "softmax", "embedding", "element-wise", "reduction", "optimizer",
    "communication", "copy", "other",
)  # fmt: skip

MATRIX_CATEGORIES = ("gemm", "attention", "convolution")
"""Categories that can use tensor cores, and whose FLOPs are a model's."""

MOST_NAMES = 16_384
"""Of distinct ones are remembered: the ranks of a job run the same kernels."""

_I = re.IGNORECASE

# In this order: a flash-attention kernel may carry "fprop", a convolution "gemm", a norm "elementwise".
_BY_KERNEL = (
    (
        "attention",
        re.compile(
            r"flash|fmha|sdpa|attention|attn|compute_dot_do_o|convert_dq_to_16"
            # AOTriton's backward; AITER's paged attention and multi-head latent attention
            r"|^bwd_kernel_(dk_dv|dq|fuse)|^bwd_preprocess|aiter.*(\d|::|_)(pa|mla)_",
            _I,
        ),
    ),
    (
        "convolution",
        re.compile(r"conv(?!ert)|[fw]prop|[dw]grad|winograd|im2col|col2im|^igemm_(fwd|bwd|wrw)_|_bwd_weight", _I),
    ),
    (
        "gemm",
        re.compile(r"gemm|nvjet|gemv|splitKreduce|Cijk_|matmul|triton_tem_.*mm|wgmma|cublas|aiter.*fmoe|MoeFlatmm", _I),
    ),
    ("optimizer", re.compile(r"FusedOptimizer|FusedAdam|FusedSgd|adam|lamb_|lars_", _I)),
    ("norm", re.compile(r"(layer|rms|batch|group|instance)_?norm|GammaBeta|RowwiseMoments|\bbn_[fb]w", _I)),
    ("softmax", re.compile(r"soft_?max|nll_loss|cross_entropy|logsumexp", _I)),
    ("embedding", re.compile(r"embedding|gather_kernel|index|scatter|compute_grad_weight|radix_sort", _I)),
    ("reduction", re.compile(r"reduce|triton_(per|red)_|cub::.*(Reduce|Scan)", _I)),
    (
        "element-wise",
        re.compile(
            r"elementwise|copy|CatArray|Fill|dropout|triton_poi_|multi_tensor_apply|transpose|^SubTensorOp|^OpTensor",
            _I,
        ),
    ),
)

# What the operator is decides before its kernels' names do.
_BY_OPERATOR = (
    ("attention", re.compile(r"attention|attn", _I)),
    ("convolution", re.compile(r"conv(olution)?(\d|_|$)", _I)),
    ("optimizer", re.compile(r"_fused_(adam|sgd|adagrad)|_foreach_(?!copy|zero|norm)", _I)),
    ("norm", re.compile(r"(layer|rms|batch|group|instance)_norm", _I)),
    ("softmax", re.compile(r"softmax|nll_loss|cross_entropy", _I)),
    ("embedding", re.compile(r"embedding", _I)),
)

_TENSOR_CORES = re.compile(
    r"nvjet|tensorop|wgmma|gmma|hmma|imma|[a-z]?(16816|1688|884|16832|161616)(gemm|_|$)|wmma|flash_(fwd|bwd)|tf32"
    r"|xmma_gemm_(bf16|f16|i8|e4m3|e5m2)|fmha_cutlass[FB]_(bf16|f16)|MFMA|_MI\d+x\d+|xdlops|_xdl_|_gtcx\d?_",
    _I,
)
_NO_TENSOR_CORES = re.compile(r"simt|ffma|(?<![\da-z])s?gemv|(^|_|volta_|ampere_|maxwell_)(sgemm|dgemm)|_fma_", _I)

_LIST_TYPES = (
    re.compile(r"multi_tensor_apply_kernel<.*?Functor<([\w:]+)(?:, ([a-zA-Z][\w:]*))?[,>]"),
    re.compile(r"chunk_cat_cuda_kernel<(?!char)([\w:]+), ([\w:]+)>"),  # with `char` it moves bytes of any type
    re.compile(r"CatArrayBatchedCopy\w*<(?:at::native::\(anonymous namespace\)::)?([\w:]+(?:<\d+u>)?)()"),
)

_TRITON = re.compile(r"triton_(?P<kind>poi|per|red|tem|for)_fused_(?P<names>\w+?)_\d+$")

# Names of operators that hold underscores: in a fused kernel's name underscores also part the operators.
_LONG_NAMES = """
    _to_copy _unsafe_view _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data
    native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward _fused_rms_norm
    native_batch_norm native_batch_norm_backward _native_batch_norm_legit native_dropout native_dropout_backward
    embedding_dense_backward gelu_backward silu_backward tanh_backward sigmoid_backward threshold_backward
    hardtanh_backward leaky_relu leaky_relu_backward select_backward slice_backward select_scatter slice_scatter
    index_select index_put index_add masked_fill nll_loss_forward nll_loss_backward nll_loss constant_pad_nd
    convolution_backward max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward
    split_with_sizes new_zeros zeros_like ones_like full_like new_full scalar_tensor clamp_min clamp_max
    bitwise_and bitwise_or bitwise_not logical_and logical_or logical_not scatter_add as_strided
    _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention linalg_vector_norm
    upsample_nearest2d upsample_nearest2d_backward _foreach_copy
""".split()  # noqa: SIM905 - a list literal would take a page
_WORD = re.compile("|".join([*sorted(map(re.escape, _LONG_NAMES), key=len, reverse=True), r"[a-z0-9]+"]))

_FUSION_KINDS = {
    "poi": "pointwise",
    "per": "persistent reduction",
    "red": "reduction",
    "tem": "template",
    "for": "foreach",
}


@lru_cache(MOST_NAMES)
def category(kernel: str, kind: str, operator: str | None) -> str:
    """One of `CATEGORIES` for the kernels of one name, kind and operator."""
    if kind in ("comm", "copy"):
        return "communication" if kind == "comm" else "copy"
    # A fused kernel is called like its operator: there the kernel's own kind says more.
    if operator and not operator.startswith("triton_"):
        for name, pattern in _BY_OPERATOR:
            if pattern.search(operator):
                return name
    if kernel.startswith("triton_poi_"):
        return "element-wise"
    return next((name for name, pattern in _BY_KERNEL if pattern.search(kernel)), "other")


@lru_cache(MOST_NAMES)
def uses_tensor_cores(kernel: str) -> bool | None:
    """Whether a matrix kernel runs on tensor cores (or AMD's matrix cores); `None` when its name does not say."""
    if _TENSOR_CORES.search(kernel):
        return True
    return False if _NO_TENSOR_CORES.search(kernel) else None


@lru_cache(MOST_NAMES)
def list_types(kernel: str) -> tuple[str, ...]:
    """Element types of the lists of tensors that a kernel works on: one, or a copy's target and source; none else."""
    found = next((match for pattern in _LIST_TYPES if (match := pattern.search(kernel))), None)
    return tuple(name for name in found.groups() if name) if found else ()


def fusion(kernel: str) -> tuple[str, tuple[str, ...]] | None:
    """Kind and operators of a kernel that Inductor made, from its name; `None` for other kernels.

    Inductor's name lists each distinct operator once, in alphabetical order, joined by underscores. A long list
    is cut by Inductor itself.
    """
    match = _TRITON.match(kernel)
    if match is None:
        return None
    return _FUSION_KINDS[match["kind"]], tuple(_WORD.findall(match["names"]))
