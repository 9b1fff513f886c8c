"""What a person calls a kernel."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from traceanalyzer.kinds import MESSAGES, collective

MOST = 64
"""Characters of a short name."""


def runtime_activity(kernel: str) -> str | None:
    """`memset` or `memcpy` for the kernels with which HIP itself fills and copies memory; `None` for others."""
    if not kernel.startswith("__amd_rocclr_"):
        return None
    return "memset" if "fill" in kernel else "memcpy" if "copy" in kernel else None


@lru_cache(maxsize=65_536)
def short_name(name: str) -> str:
    """Short name of a GPU operation, for display: different kernels may share one.

    `multi_tensor_apply · FusedAdam`, `elementwise · add bf16`, `nvjet 192×128 bf16`, `NCCL all-reduce f32`. What no
    rule knows loses its arguments, template and namespaces only. Control and bidirectional characters are dropped, and
    the marks around a range's name: `## backward ##` is `backward`.
    """
    plain = "".join(filter(str.isprintable, name)).strip("# ")
    for words, pattern in _RULES:
        if match := re.search(pattern, plain):
            known = {**match.groupdict(default=""), "name": plain, "rest": plain[match.end() :]}
            parts = {key: _Part(text) for key, text in known.items()}
            # What is not known leaves no blank.
            text = " ".join(filter(None, (word.format_map(parts) for word in words.split(" "))))
            return text if len(text) <= MOST else text[: MOST - 1] + "…"
    raise AssertionError("the last rule knows every name")


def collective_words(collective: object) -> str:
    """A kind of communication as people write it: `all_reduce` is `all-reduce`."""
    return str(collective).replace("_", "-")


def collectives_words(collective: object) -> str:
    """Several of them: `all-reduces`, `peer copies`."""
    return _SEVERAL.get(str(collective), f"{collective_words(collective)}s")


_SEVERAL: Mapping[str, str] = MappingProxyType(
    {
        "ep_dispatch": "expert dispatches",
        "ep_combine": "expert combines",
        "peer_copy": "peer copies",
        MESSAGES: MESSAGES,
    }
)
"""Kinds of communication of which several are not called by one more letter."""


# How a part of a kernel's name is written in its short name.


class _Part(str):
    """A part of a name, which `{part:how}` writes as `_HOW` says."""

    __slots__ = ()

    def __format__(self, how: str) -> str:
        return _HOW[how](str(self)) if how else str(self)


def _first(*patterns: str, otherwise: str = "") -> Callable[[str], str]:
    """The group of the first of these patterns that is found."""

    def found(text: str) -> str:
        all_of = (match[1] for pattern in patterns for match in re.finditer(pattern, text))
        return next((_snake(one) for one in all_of if one not in ("gpu", "opmath_gpu", "gpu_kernel")), otherwise)

    return found


def _snake(text: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()


def _held(*words: str) -> Callable[[str], str]:
    """Those of these words that stand in a text."""
    return lambda text: " ".join(word for word in words if word in text)


def _nccl(name: str) -> str:
    """The collective: the algorithm and protocol in the name are the compiled variant, not what ran."""
    kind = collective(name)
    return "send/recv" if kind == "send_recv" else collective_words(kind or "kernel")


def _into(arguments: str) -> str:
    target = re.search(r"\b(bfloat16|float16|float8)_copy_kernel", arguments)
    return f"→ {target[1].replace('float', 'f')}" if target else ""


def _element(arguments: str) -> str:
    """The element type that a kernel's template arguments name first; empty without one."""
    named = re.search(r"(?:<|lambda\()(?:c10::)?(" + "|".join(_ELEMENTS) + r")(?=[,>)])", arguments)
    return _ELEMENTS[named[1]] if named else ""


_ELEMENTS = {
    "float": "f32", "double": "f64", "BFloat16": "bf16", "Half": "f16", "long": "i64", "int": "i32", "short": "i16",
    "signed char": "i8", "unsigned char": "u8", "bool": "bool",
}  # fmt: skip


def _bare(name: str) -> str:
    """The function's own name: without return type, arguments, template arguments and namespaces."""
    text = re.sub(r"(?:\(anonymous namespace\)|<unnamed>)::", "", name).removeprefix("void ")
    head = re.split(r"[<(]", text, maxsplit=1)[0].strip()
    if not re.fullmatch(r"[\w:~]+", head) or head == text:
        return name or "(unnamed)"  # no C++ signature
    own = head.rsplit("::", 1)[-1] or head
    return re.sub(r"_kernel(?:_cuda|_impl)?$", "", own) or own


_WORDS = {
    # The summed index first means a transposed A and a plain B: BLAS's letters.
    "lik_Bljk": "TN", "lik_Bjlk": "TT", "ilk_Bljk": "NN", "ilk_Bjlk": "NT",
    **dict.fromkeys(("fwd", "fprop"), "conv forward"),
    **dict.fromkeys(("bwd", "dgrad"), "conv data grad"),
    **dict.fromkeys(("wrw", "wgrad"), "conv weight grad"),
    "poi": "pointwise", "red": "reduction", "per": "reduction", "tem": "template", "for": "foreach",
    "plus": "add", "minus": "sub", "multiplies": "mul", "divides": "div",
}  # fmt: skip

_ROCM = {"H": "fp16", "B": "bf16", "S": "f32", "D": "f64", "F8": "fp8", "B8": "bf8", "I8": "i8"}

_HOW: Mapping[str, Callable[[str], str]] = {
    "word": lambda text: _WORDS.get(text, text),
    "lower": str.lower,
    "×": lambda text: text.replace("x", "×"),
    "own": lambda text: re.sub(r"^(?:MIOpen|miopen)_*|(?:Kernel|_kernel)$", "", text),
    "bare": _bare,
    "cudnn": lambda name: _bare(name).removeprefix("cudnn_").removeprefix("generated_fort_native_"),
    "way": lambda name: "backward" if re.search(r"(?i)bprop|bwd|backward|cutlassB|dgrad", name) else "forward",
    "nccl": _nccl,
    "nccl_type": _first(r"_(bf16|f8e\dm\d|[fui]\d+)(?:_|\(|$)"),
    "rocm_type": lambda text: _ROCM.get(text) or _ROCM.get(text[0], ""),
    "nvjet_type": lambda text: {"t": "bf16", "h": "fp16", "d": "fp64", "q": "fp8"}.get(text[:1], ""),
    "nvjet_more": _held("splitK", "bias"),
    "xmma_type": _first(r"_([a-z]+\d+)[a-z]*\d*_"),
    "xmma_layout": _first(r"_([nt]{2})_n_tilesize"),
    "triton": lambda text: re.sub(r"native_|_unsafe", "", text).strip("_"),
    "log": lambda name: "log_" if "LogSoftMax" in name else "",
    "element": _element,
    "into": _into,
    "casting": lambda arguments: "casting" if "LoadWithCast" in arguments else "",
    "reduced": _first(r"::(\w+?)(?:_functor|Ops|_?Functor)\b", otherwise="other"),
    "foreach": _first(r"(?:Functor<[^>]*>, )at::native::(\w+?)(?:Functor)?<", r"\b(\w+?)Functor<", otherwise="other"),
    "functor": _first(  # what an elementwise kernel's template arguments say that it computes
        r"CUDAFunctor(?:OnSelf)?_(\w+)",
        r"\b(?!(?:[AB]?Unary|Binary|Opaque\w*)Functor)(\w+?)Functor\b",
        r"\b(?:direct_|bfloat16_|float\w*_)?(\w+?)_kernel(?:_cuda|_impl|_cuda_impl)?\b(?<!gpu_kernel_impl)",
        r"\b(\w+?)(?:CUDA)?KernelImpl\b",
        r"\blaunch_(\w+?)(?:_scalar|_kernel)?\(",
        r"\b(\w+?)_cuda(?:_out)?\(",
        otherwise="other",
    ),
}

_SHORT_NAMES = r"""
NCCL {name:nccl} {name:nccl_type}  ←  (?i)^nccl
# PyTorch's range, no function's arguments
{own}  ←  ^(?P<own>enumerate\(DataLoader\))
# a Python frame
{own} ({file}:{line})  ←  ^(?:.*/)?(?P<file>[^/]+)\((?P<line>\d+)\): (?P<own>.+)$
{own}  ←  ^autograd::engine::evaluate_function: (?P<own>.+)$
# AMD's libraries: Tensile, MIOpen, Composable Kernel, AITER, rocPRIM, HIP's own.
Tensile gemm {layout:word} {tile:×} {types:rocm_type}  ←  ^Cijk_A(?:(?P<layout>(?:lik|ilk)_B(?:ljk|jlk))|[a-z]{3}_B[a-z]{3})_(?P<types>[A-Z]\d?)[A-Z0-9]*_.*?MT(?P<tile>\d+x\d+)(?:x\d+)?_
MIOpen {pass:word} {tile:×} {dtype}  ←  ^igemm_(?P<pass>fwd|bwd|wrw)_\w+?_(?P<dtype>bf16|fp16|fp32|int8)_.*?_bt(?P<tile>\d+x\d+)
# Mangled: the length of a name stands before it, I before its template arguments, E behind the scope.
ck · {what:own}  ←  ^_ZN2ck.*?\d+kernel_(?P<what>[a-z]\w*?)(?=I[A-Z]|E)
ck · {what:own}  ←  \bck::(?:\w+::)*(?:\(anonymous namespace\)::)?kernel_(?P<what>\w+)
ck_tile · {what:own}  ←  ^_ZN7ck_tile\d+kentry.*?NS_\d+(?P<what>[A-Za-z]\w*?)(?=I[A-Z]|E)
ck_tile · {what:own}  ←  \bck_tile::kentry<.*?ck_tile::(?P<what>\w+)
aiter · {what:own}  ←  ^_ZN5aiter\d+(?P<what>[A-Za-z]\w*?)(?=I[A-Z]|E)
aiter · {what:own}  ←  \baiter::(?:\w+::)*(?P<what>[A-Za-z]\w*)
rocPRIM · {what:own}  ←  \brocprim::(?:\w+::)*(?P<what>\w+)<
HIP fill  ←  ^__amd_rocclr_fill
HIP copy  ←  ^__amd_rocclr_copy
MIOpen tensor op  ←  ^SubTensorOp
MIOpen · {what:own}  ←  ^(?P<what>MIOpen\w+|miopen\w+)
# NVIDIA's and PyTorch's.
nvjet {tile:×} {types:nvjet_type} {name:nvjet_more}  ←  ^nvjet(?:_sm\d+)?_(?P<types>[a-z]+)_(?P<tile>\d+x\d+)
flash attention {name:way}  ←  flash::|flash_(?:fwd|bwd|attn)|FlashAttn|_flash_attn
memory-efficient attention {name:way}  ←  ^fmha_cutlass|PyTorchMemEffAttention
cuDNN attention {name:way}  ←  ^(?i:(?:void )?cudnn)(?=.*(?:sdpa|flash|mha))
cuDNN · {name:cudnn}  ←  (?i)^(?:void )?cudnn
cutlass {op} {tile:×} {layout}  ←  cutlass\w*?_\d+_(?:simt|tensorop|wmma_tensorop)_(?P<op>\w*?gemm)(?:_[a-z]\w*?)??_(?P<tile>\d+x\d+)(?:_\w+?_(?P<layout>[nt]{2})(?:_align\d+)?\b)?
xmma {op:word} {tile:×} {rest:xmma_type} {name:xmma_layout}  ←  xmma_(?P<op>gemm|fprop|dgrad|wgrad)(?=(?:.*?tilesize(?P<tile>\d+x\d+))?)
cublas {op} {tile:×}  ←  ^(?:volta|turing|ampere|ada|hopper|sm\d+)_(?P<op>\w*?gemm)\w*?_(?P<tile>\d+x\d+)
triton {kind:word} · {ops:triton}  ←  ^triton_(?P<kind>[a-z]{3})_fused_(?P<ops>\w+?)(?:_\d+)?$
multi_tensor_apply · {own}  ←  multi_tensor_apply_kernel<.*?\b(?P<own>Fused\w+?)(?:Math)?Functor
multi_tensor_apply · {op:word}  ←  multi_tensor_apply_kernel<.*?std::(?P<op>plus|minus|multiplies|divides)\b
multi_tensor_apply · {rest:foreach}  ←  multi_tensor_apply_kernel<
elementwise · {rest:functor} {rest:element} {rest:into} strided  ←  \belementwise_kernel<
elementwise · {rest:functor} {rest:element} {rest:into} {rest:casting}  ←  \w*elementwise\w*_kernel\w*<
reduce · {rest:reduced} {rest:element}  ←  \breduce_kernel<
{name:log}softmax {way:lower}  ←  SoftMax(?P<way>Forward|Backward)
cublasLt · split-K reduce  ←  splitKreduce
cat  ←  CatArrayBatchedCopy
layer_norm backward (gamma, beta)  ←  GammaBetaBackward
layer_norm backward (input)  ←  layer_norm_grad_input
layer_norm  ←  layer_norm_kernel
cub · {what:own}  ←  \bDevice(?P<what>[A-Z]\w+?)Kernel\b
copy {way} ({from:lower} → {to:lower})  ←  ^Memcpy (?P<way>\w+) \((?P<from>\w+) -> (?P<to>\w+)\)
memset  ←  ^Memset
{name:bare}  ←  ^
"""  # noqa: E501 - one rule, one line
"""A short name, and the pattern of the names that have it: of several that are found the first.

In it stand the pattern's groups, the whole `name`, and the `rest` behind what was found.
"""

_RULES = tuple(line.split("  ←  ") for line in _SHORT_NAMES.strip().splitlines() if not line.startswith("# "))
