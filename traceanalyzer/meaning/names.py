"""What a person calls a kernel."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from traceanalyzer.kinds import MESSAGES
from traceanalyzer.kinds import collective as collective_of

# What a person calls the kernels of AMD's libraries: Tensile, MIOpen, Composable Kernel, AITER, rocPRIM, HIP's own.


Rule = tuple[str, Callable[[re.Match[str], str], str]]
"""A pattern, and the short name of what it is found in: compiled when it is first looked for."""

_ROCM_NAMES_ELEMENTS = {"H": "fp16", "B": "bf16", "S": "f32", "D": "f64", "F8": "fp8", "B8": "bf8", "I8": "i8"}

_TENSILE = r"^Cijk_A(?P<a>[a-z]{3})_B(?P<b>[a-z]{3})_(?P<types>[A-Z]\d?)[A-Z0-9]*_.*?MT(?P<tile>\d+x\d+)(?:x\d+)?_"
# The summed index first means a transposed A and a plain B: BLAS's letters.
_LAYOUT = {("lik", "ljk"): "TN", ("lik", "jlk"): "TT", ("ilk", "ljk"): "NN", ("ilk", "jlk"): "NT"}

_PASSES = {"fwd": "conv forward", "bwd": "conv data grad", "wrw": "conv weight grad"}

_CK_PLAIN = r"\bck::(?:\w+::)*(?:\(anonymous namespace\)::)?kernel_(?P<what>\w+)"


def runtime_activity(kernel: str) -> str | None:
    """`memset` or `memcpy` for the kernels with which HIP itself fills and copies memory; `None` for others."""
    if not kernel.startswith("__amd_rocclr_"):
        return None
    return "memset" if "fill" in kernel else "memcpy" if "copy" in kernel else None


def _tensile(match: re.Match[str], _: str) -> str:
    layout = _LAYOUT.get((match["a"], match["b"]), "")
    dtype = _ROCM_NAMES_ELEMENTS.get(match["types"]) or _ROCM_NAMES_ELEMENTS.get(match["types"][0], "")
    return " ".join(filter(None, ["Tensile gemm", layout, match["tile"].replace("x", "×"), dtype]))


def _igemm(match: re.Match[str], _: str) -> str:
    return f"MIOpen {_PASSES[match['pass']]} {match['tile'].replace('x', '×')} {match['dtype']}"


def _of(library: str) -> Callable[[re.Match[str], str], str]:
    """A library's kernels by their own names."""
    return lambda match, _: f"{library} · {re.sub(_AFFIXES, '', match['what'])}"


_AFFIXES = r"^(?:MIOpen|miopen)_*|(?:Kernel|_kernel)$"

RULES: tuple[Rule, ...] = (
    (_TENSILE, _tensile),
    (
        r"^igemm_(?P<pass>fwd|bwd|wrw)_\w+?_(?P<dtype>bf16|fp16|fp32|int8)_.*?_bt(?P<tile>\d+x\d+)",
        _igemm,
    ),
    # Mangled: the length of a name stands before it, I before its template arguments, E behind the scope.
    (r"^_ZN2ck.*?\d+kernel_(?P<what>[a-z]\w*?)(?=I[A-Z]|E)", _of("ck")),
    (_CK_PLAIN, _of("ck")),
    (r"^_ZN7ck_tile\d+kentry.*?NS_\d+(?P<what>[A-Za-z]\w*?)(?=I[A-Z]|E)", _of("ck_tile")),
    (r"\bck_tile::kentry<.*?ck_tile::(?P<what>\w+)", _of("ck_tile")),
    (r"^_ZN5aiter\d+(?P<what>[A-Za-z]\w*?)(?=I[A-Z]|E)", _of("aiter")),
    (r"\baiter::(?:\w+::)*(?P<what>[A-Za-z]\w*)", _of("aiter")),
    (r"\brocprim::(?:\w+::)*(?P<what>\w+)<", _of("rocPRIM")),
    (r"^__amd_rocclr_fill", lambda *_: "HIP fill"),
    (r"^__amd_rocclr_copy", lambda *_: "HIP copy"),
    (r"^SubTensorOp", lambda *_: "MIOpen tensor op"),
    (r"^(?P<what>MIOpen\w+|miopen\w+)", _of("MIOpen")),
)
"""The first rule whose pattern is found in the name gives the short name."""


# What a person calls a kernel: short names for the long ones that compilers make.


MOST = 64
"""Characters of a short name."""


@lru_cache(maxsize=65_536)
def short_name(name: str) -> str:
    """Short name of a GPU operation, for display: different kernels may share one.

    `multi_tensor_apply · FusedAdam`, `elementwise · add bf16`, `nvjet 192×128 bf16`, `NCCL all-reduce f32`. What no
    rule knows loses its arguments, template and namespaces only. Control and bidirectional characters are dropped, and
    the marks around a range's name: `## backward ##` is `backward`.
    """
    plain = _printable(name).strip("# ")
    for pattern, shorten in _RULES:
        if match := re.search(pattern, plain):
            return _cut(shorten(match, plain))
    return _cut(_bare(plain))


def collective_words(collective: object) -> str:
    """A kind of communication as people write it: `all_reduce` is `all-reduce`."""
    return str(collective).replace("_", "-")


def collectives_words(collective: object) -> str:
    """Several of them: `all-reduces`, `peer copies`."""
    return _SEVERAL.get(str(collective), f"{collective_words(collective)}s")


def _nccl(_: re.Match[str], name: str) -> str:
    # The algorithm and protocol in the name are the compiled variant, not what ran: never shown.
    collective = collective_of(name)
    dtype = re.search(r"_(bf16|f8e\dm\d|[fui]\d+)(?:_|\(|$)", name)
    what = "send/recv" if collective == "send_recv" else collective_words(collective or "kernel")
    return f"NCCL {what}" + (f" {dtype[1]}" if dtype else "")


def _nvjet(match: re.Match[str], name: str) -> str:
    dtype = {"t": "bf16", "h": "fp16", "d": "fp64", "q": "fp8"}.get(match["types"][:1], "")
    extras = [word for word in ("splitK", "bias") if word in name]
    return " ".join(filter(None, ["nvjet", _tile(match["tile"]), dtype, *extras]))


def _cutlass(match: re.Match[str], _: str) -> str:
    return " ".join(filter(None, ["cutlass", match["op"], _tile(match["tile"]), match["layout"] or ""]))


def _xmma(match: re.Match[str], name: str) -> str:
    what = {"gemm": "gemm", "fprop": "conv forward", "dgrad": "conv data grad", "wgrad": "conv weight grad"}
    tile = re.search(r"tilesize(\d+x\d+)", name)
    dtype = re.search(r"_([a-z]+\d+)[a-z]*\d*_", name[match.end() :])
    layout = re.search(r"_([nt]{2})_n_tilesize", name)
    parts = [_tile(tile[1]) if tile else "", *(found[1] for found in (dtype, layout) if found)]
    return " ".join(filter(None, ["xmma", what[match["op"]], *parts]))


def _cublas(match: re.Match[str], _: str) -> str:
    return f"cublas {match['op']} {_tile(match['tile'])}"


def _cudnn(_: re.Match[str], name: str) -> str:
    if re.search(r"sdpa|flash|mha", name):
        return f"cuDNN attention {_direction(name)}"
    return f"cuDNN · {_bare(name).removeprefix('cudnn_').removeprefix('generated_fort_native_')}"


def _attention(kind: str) -> Callable[[re.Match[str], str], str]:
    return lambda _, name: f"{kind} attention {_direction(name)}"


def _direction(name: str) -> str:
    is_backward = re.search(r"bprop|bwd|backward|cutlassB|dgrad", name, re.IGNORECASE)
    return "backward" if is_backward else "forward"


def _triton(match: re.Match[str], _: str) -> str:
    pass_ = {"poi": "pointwise", "red": "reduction", "per": "reduction", "tem": "template", "for": "foreach"}
    body = re.sub(r"native_|_unsafe", "", match["ops"]).strip("_")
    return f"triton {pass_.get(match['kind'], match['kind'])} · {body}"


def _elementwise(match: re.Match[str], name: str) -> str:
    arguments = name[match.end() :]
    target = re.search(r"\b(bfloat16|float16|float8)_copy_kernel", arguments)
    into = f"→ {target[1].replace('float', 'f')}" if target else ""
    how = "strided" if match[0] == "elementwise_kernel<" else "casting" if "LoadWithCast" in arguments else ""
    return " ".join(filter(None, ["elementwise ·", _functor(arguments) or "other", _element(arguments), into, how]))


def _reduce(match: re.Match[str], name: str) -> str:
    op = re.search(r"::(\w+?)(?:_functor|Ops|_?Functor)\b", name[match.end() :])
    return " ".join(filter(None, ["reduce ·", _snake(op[1]) if op else "other", _element(name[match.end() :])]))


def _element(arguments: str) -> str:
    """The element type that a kernel's template arguments name first; empty without one."""
    named = re.search(r"(?:<|lambda\()(?:c10::)?(" + "|".join(_ELEMENTS) + r")(?=[,>)])", arguments)
    return _ELEMENTS[named[1]] if named else ""


_SEVERAL: Mapping[str, str] = MappingProxyType(
    {"ep_dispatch": "expert dispatches", "peer_copy": "peer copies", MESSAGES: MESSAGES}
)
"""Kinds of communication of which several are not called by one more letter."""

_ELEMENTS = {
    "float": "f32", "double": "f64", "BFloat16": "bf16", "Half": "f16", "long": "i64", "int": "i32", "short": "i16",
    "signed char": "i8", "unsigned char": "u8", "bool": "bool",
}  # fmt: skip


def _foreach(match: re.Match[str], name: str) -> str:
    rest = name[match.end() :]
    fused = re.search(r"\b(Fused\w+?)(?:Math)?Functor", rest)
    if fused:
        return f"multi_tensor_apply · {fused[1]}"
    operator = re.search(r"std::(plus|minus|multiplies|divides)\b", rest)
    named = re.search(r"(?:Functor<[^>]*>, )at::native::(\w+?)(?:Functor)?<", rest) or re.search(
        r"\b(\w+?)Functor<", rest
    )
    what = _OPERATORS[operator[1]] if operator else _snake(named[1]) if named else "other"
    return f"multi_tensor_apply · {what}"


_OPERATORS = {"plus": "add", "minus": "sub", "multiplies": "mul", "divides": "div"}


def _softmax(match: re.Match[str], name: str) -> str:
    return f"{'log_' if 'LogSoftMax' in name else ''}softmax {match['way'].lower()}"


def _copy(match: re.Match[str], _: str) -> str:
    return f"copy {match['way']} ({match['from'].lower()} → {match['to'].lower()})"


def _functor(text: str) -> str | None:
    """What an elementwise kernel's template arguments say that it computes."""
    for pattern in (
        r"CUDAFunctor(?:OnSelf)?_(\w+)",
        r"\b(?!(?:[AB]?Unary|Binary|Opaque\w*)Functor)(\w+?)Functor\b",
        r"\b(?:direct_|bfloat16_|float\w*_)?(\w+?)_kernel(?:_cuda|_impl|_cuda_impl)?\b(?<!gpu_kernel_impl)",
        r"\b(\w+?)(?:CUDA)?KernelImpl\b",
        r"\blaunch_(\w+?)(?:_scalar|_kernel)?\(",
        r"\b(\w+?)_cuda(?:_out)?\(",
    ):
        for found in re.finditer(pattern, text):
            if found[1] not in ("gpu", "opmath_gpu", "gpu_kernel"):
                return _snake(found[1])
    return None


_RULES: tuple[Rule, ...] = (
    (r"(?i)^nccl", _nccl),
    (r"^enumerate\(DataLoader\)", lambda match, _: match[0]),  # PyTorch's range, no function's arguments
    (r"^(?:.*/)?([^/]+)\((\d+)\): (.+)$", lambda match, _: f"{match[3]} ({match[1]}:{match[2]})"),  # a Python frame
    (r"^autograd::engine::evaluate_function: (.+)$", lambda match, _: match[1]),
    *RULES,
    (r"^nvjet(?:_sm\d+)?_(?P<types>[a-z]+)_(?P<tile>\d+x\d+)", _nvjet),
    (r"flash::|flash_(?:fwd|bwd|attn)|FlashAttn|_flash_attn", _attention("flash")),
    (r"^fmha_cutlass|PyTorchMemEffAttention", _attention("memory-efficient")),
    (r"(?i)^(?:void )?cudnn", _cudnn),
    (
        (
            r"cutlass\w*?_\d+_(?:simt|tensorop|wmma_tensorop)_(?P<op>\w*?gemm)(?:_[a-z]\w*?)??_(?P<tile>\d+x\d+)"
            r"(?:_\w+?_(?P<layout>[nt]{2})(?:_align\d+)?\b)?"
        ),
        _cutlass,
    ),
    (r"xmma_(?P<op>gemm|fprop|dgrad|wgrad)", _xmma),
    (r"^(?:volta|turing|ampere|ada|hopper|sm\d+)_(?P<op>\w*?gemm)\w*?_(?P<tile>\d+x\d+)", _cublas),
    (r"^triton_(?P<kind>[a-z]{3})_fused_(?P<ops>\w+?)(?:_\d+)?$", _triton),
    (r"multi_tensor_apply_kernel<", _foreach),
    (r"\w*elementwise\w*_kernel\w*<", _elementwise),
    (r"\breduce_kernel<", _reduce),
    (r"SoftMax(?P<way>Forward|Backward)", _softmax),
    (r"splitKreduce", lambda *_: "cublasLt · split-K reduce"),
    (r"CatArrayBatchedCopy", lambda *_: "cat"),
    (r"GammaBetaBackward", lambda *_: "layer_norm backward (gamma, beta)"),
    (r"layer_norm_grad_input", lambda *_: "layer_norm backward (input)"),
    (r"layer_norm_kernel", lambda *_: "layer_norm"),
    (r"\bDevice(?P<what>[A-Z]\w+?)Kernel\b", _of("cub")),
    (r"^Memcpy (?P<way>\w+) \((?P<from>\w+) -> (?P<to>\w+)\)", _copy),
    (r"^Memset", lambda *_: "memset"),
)
"""The first rule whose pattern is found in the name gives the short name."""


def _bare(name: str) -> str:
    """The function's own name: without return type, arguments, template arguments and namespaces."""
    text = re.sub(r"(?:\(anonymous namespace\)|<unnamed>)::", "", name).removeprefix("void ")
    head = re.split(r"[<(]", text, maxsplit=1)[0].strip()
    if not re.fullmatch(r"[\w:~]+", head) or head == text:
        return name or "(unnamed)"  # no C++ signature
    own = head.rsplit("::", 1)[-1] or head
    return re.sub(r"_kernel(?:_cuda|_impl)?$", "", own) or own


def _tile(text: str) -> str:
    return text.replace("x", "×")


def _snake(text: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()


def _printable(name: str) -> str:
    return "".join(character for character in name if character.isprintable())


def _cut(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
